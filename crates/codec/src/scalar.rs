//! Every function in plain loops over bytes: the oracle for the other implementations.
//!
//! Favours clarity over speed. Always compiled, runs on any machine.
#![allow(clippy::indexing_slicing, reason = "the tables' indices are bytes, and the part was checked")]

use std::ops::Range;

use crate::field::multiply;
use crate::matrix::Matrix;
use crate::polynomial::times_x;

/// Computes output r = the sum over c of matrix(r, c) * input c, for a part of each column.
pub(crate) fn combine(matrix: &Matrix, inputs: &[&[u8]], outputs: &mut [&mut [u8]], part: Range<usize>) {
    matrix.check(inputs, outputs, &part);
    for (row, output) in outputs.iter_mut().enumerate() {
        let output = &mut output[part.clone()];
        output.fill(0);
        for (input, &factor) in inputs.iter().zip(matrix.row(row)) {
            add_product(factor, &input[part.clone()], output);
        }
    }
}

/// Adds `factor` times the input to the output. Factor 1 (the parity of RAID 5) has a loop that
/// compilers vectorise.
fn add_product(factor: u8, input: &[u8], output: &mut [u8]) {
    if factor == 1 {
        for (out, &byte) in output.iter_mut().zip(input) {
            *out ^= byte;
        }
    } else {
        let products: [u8; 256] = std::array::from_fn(|byte| multiply(factor, byte as u8));
        for (out, &byte) in output.iter_mut().zip(input) {
            *out ^= products[usize::from(byte)];
        }
    }
}

/// Effect of eight zero bits on a register with this byte.
static CRC_TABLE: [u32; 256] = crc_table();

const fn crc_table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            register = times_x(register);
            bit += 1;
        }
        table[byte] = register;
        byte += 1;
    }
    table
}

/// Continues the CRC-32C `crc` with `data`.
pub(crate) fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    !data.iter().fold(!crc, |crc, &byte| crc >> 8 ^ CRC_TABLE[usize::from(crc as u8 ^ byte)])
}

/// Returns true if every byte is zero.
pub(crate) fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|&byte| byte == 0)
}

/// Does the same as [`is_zero`](crate::is_zero), 64 bytes at a time, in a form that compilers
/// vectorise.
pub(crate) fn is_zero_by_words(data: &[u8]) -> bool {
    let (groups, rest) = data.as_chunks::<64>();
    let is_zero = |group: &[u8; 64]| group.iter().fold(0, |any, &byte| any | byte) == 0;
    groups.iter().all(is_zero) && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests;
