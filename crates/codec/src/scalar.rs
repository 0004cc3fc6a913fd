//! Everything in plain loops over bytes: the oracle that the other implementations are held to.
//!
//! Owns no method worth reading twice: where clear and fast disagree, this file is clear. Always compiled, runs anywhere.
#![allow(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "the table's index is a byte")]

use crate::field::multiply;
use crate::matrix::Matrix;
use crate::row::{Row, Source};

/// Output r = the sum over c of matrix(r, c) * input c.
pub(crate) fn combine(matrix: &Matrix, inputs: &[&[u8]], outputs: &mut [&mut [u8]]) {
    for (row, output) in outputs.iter_mut().enumerate() {
        output.fill(0);
        for (input, &factor) in inputs.iter().zip(matrix.row(row)) {
            for (out, &byte) in output.iter_mut().zip(*input) {
                *out ^= multiply(factor, byte);
            }
        }
    }
}

const CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { crate::checksum::POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// CRC-32C of what gave `crc` followed by `data`.
pub(crate) fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    !data.iter().fold(!crc, |crc, &byte| crc >> 8 ^ CRC_TABLE[usize::from(crc as u8 ^ byte)])
}

/// Copies and gives the CRC-32C of the copy.
///
/// # Safety
/// As [`copy_crc32c_from`](crate::copy_crc32c_from).
pub(crate) unsafe fn copy_crc32c_from(source: *const u8, destination: &mut [u8]) -> u32 {
    // SAFETY: the caller says that the source is readable for the destination's length and apart from it. The source may
    // change meanwhile; only the copy is looked at.
    unsafe { source.copy_to_nonoverlapping(destination.as_mut_ptr(), destination.len()) };
    crc32c_append(0, destination)
}

pub(crate) fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|&byte| byte == 0)
}

/// Fills the cells, then their CRCs, then the parities: each step by itself.
///
/// # Safety
/// As [`Code::encode_row_copy`](crate::Code::encode_row_copy).
pub(crate) unsafe fn encode_row(matrix: &Matrix, row: Row<'_, '_, '_>) {
    for ((source, cell), crc) in row.sources.iter().zip(row.cells.iter_mut()).zip(row.crcs) {
        *crc = match *source {
            // SAFETY: the caller says that the source is readable for the cell's length and apart from it.
            Source::Copy(source) => unsafe { copy_crc32c_from(source, cell) },
            Source::InPlace => crc32c_append(0, cell),
            Source::Zero => {
                cell.fill(0);
                crc32c_append(0, cell)
            }
        };
    }
    let data: Vec<&[u8]> = row.cells.iter().map(|cell| &**cell).collect();
    combine(matrix, &data, row.parity);
}
