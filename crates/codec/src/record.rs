//! The write path in one call: copy the data cells of a record, compute the checksum of each, and
//! compute the parity cells.
//!
//! Owns the order of the work. Afterwards, each CRC and each parity byte matches the cells in
//! memory, even if the sources changed during the call. Must not know the contents of a cell.
//!
//! The order is the fastest one measured (comparison/README.md): each cell is copied and
//! checksummed in one pass while the source of the next cell is prefetched, and each row is encoded
//! right after its cells are copied.
#![allow(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "all shapes are checked before the first index is made")]

use std::ops::Range;

use crate::{Code, Implementation, MAX_COLUMNS};

/// The source of a data cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeros: the cell is unused.
    Zero,
    /// The current contents of the cell.
    InPlace,
    /// A copy of the bytes at this address, which may be changed concurrently.
    Copy(*const u8),
}

/// The cell length for which the checksum of a cell of zeros is precomputed.
const COMMON_CELL: usize = 4096;
/// The CRC-32C of such a cell.
const COMMON_ZERO_CRC: u32 = zeros_crc(COMMON_CELL);

const fn zeros_crc(length: usize) -> u32 {
    let mut register = !0;
    let mut bit = 0;
    while bit < 8 * length {
        register = crate::polynomial::times_x(register);
        bit += 1;
    }
    !register
}

impl Code {
    /// Fills the k data cells of one row from their sources, returns the CRC-32C of each, and
    /// computes the m parity cells. Each source is read once, so copy, checksum and parity match
    /// even if it changes.
    ///
    /// Cells may have any equal length (in bytes), usually 4096; multiples of 256 are fastest.
    ///
    /// # Safety
    /// Each [`Source::Copy`] must be valid for reads of a cell's length and overlap no cell, data
    /// or parity. During the call, it may be written by another process or a guest, and by another
    /// thread of this process only with atomic or volatile writes.
    ///
    /// # Panics
    /// If there are not k sources, k cells, k CRCs and m parity cells, or the lengths of the cells
    /// differ.
    pub unsafe fn encode_row_copy(
        &self,
        sources: &[Source],
        cells: &mut [&mut [u8]],
        crcs: &mut [u32],
        parity: &mut [&mut [u8]],
    ) {
        let cell = cells.first().map_or(0, |cell| cell.len());
        let shape = Shape { cell, rows: 1, deferred: 0 };
        // SAFETY: the caller's contract.
        unsafe { Record { code: self, shape, sources, columns: cells, crcs, parity }.fill() };
    }

    /// Does the same as [`Code::encode_row_copy`] from slices, with `None` for a cell of zeros.
    ///
    /// # Panics
    /// In the same cases, and if the length of a source is not that of a cell.
    pub fn encode_row(
        &self,
        sources: &[Option<&[u8]>],
        cells: &mut [&mut [u8]],
        crcs: &mut [u32],
        parity: &mut [&mut [u8]],
    ) {
        assert_eq!(sources.len(), cells.len(), "number of sources");
        assert!(sources.len() <= MAX_COLUMNS, "number of sources");
        let mut pointers = [Source::Zero; MAX_COLUMNS];
        for ((pointer, source), cell) in pointers.iter_mut().zip(sources).zip(cells.iter()) {
            if let Some(source) = source {
                assert_eq!(source.len(), cell.len(), "source and cell must have the same length");
                *pointer = Source::Copy(source.as_ptr());
            }
        }
        // SAFETY: a slice is readable for its length, and no shared slice overlaps a mutable one.
        unsafe { self.encode_row_copy(&pointers[..sources.len()], cells, crcs, parity) };
    }

    /// Processes all rows of a record in one call. This is faster than row by row, because the
    /// sources of the next row are prefetched.
    ///
    /// Cells have `cell` bytes, which must not be 0. `columns` are the k data and `parity` the m
    /// parity columns of the record, each R cells long. `sources` and `crcs` have k * R elements,
    /// by column and then by row: data cell (column c, row r) is element c * R + r of both.
    ///
    /// All data cells are filled and checksummed. The first `deferred` rows are not encoded: the
    /// caller first writes data that depends on the checksums into their cells (the record header),
    /// and then encodes them with [`Code::encode`].
    ///
    /// # Safety
    /// The contract of [`Code::encode_row_copy`].
    ///
    /// # Panics
    /// If a length or count is wrong.
    pub unsafe fn encode_record_copy(
        &self,
        cell: usize,
        deferred: usize,
        sources: &[Source],
        columns: &mut [&mut [u8]],
        crcs: &mut [u32],
        parity: &mut [&mut [u8]],
    ) {
        assert!(cell > 0, "the cell size must not be 0");
        let rows = columns.first().map_or(0, |column| column.len()) / cell;
        assert!(deferred <= rows, "the deferred rows must be rows of the record");
        let shape = Shape { cell, rows, deferred };
        // SAFETY: the caller's contract.
        unsafe { Record { code: self, shape, sources, columns, crcs, parity }.fill() };
    }
}

/// The number and size of the cells of a record.
#[derive(Clone, Copy)]
struct Shape {
    /// Bytes of a cell.
    cell: usize,
    rows: usize,
    /// Number of rows at the start that are not encoded.
    deferred: usize,
}

impl Shape {
    /// Returns the range of a row's cell within its column.
    fn cells(self, row: usize) -> Range<usize> {
        row * self.cell..(row + 1) * self.cell
    }
}

/// The buffers of a record.
struct Record<'a, 'd, 'p> {
    code: &'a Code,
    shape: Shape,
    sources: &'a [Source],
    columns: &'a mut [&'d mut [u8]],
    crcs: &'a mut [u32],
    parity: &'a mut [&'p mut [u8]],
}

impl Record<'_, '_, '_> {
    /// Checks all counts and lengths, for columns of `length` bytes.
    fn check(&self, length: usize) {
        let (k, m) = (usize::from(self.code.data_columns()), usize::from(self.code.parity_columns()));
        let cells = k * self.shape.rows;
        assert!(self.columns.len() == k && self.parity.len() == m, "number of data and parity columns");
        assert!(self.sources.len() == cells && self.crcs.len() == cells, "number of sources and checksums");
        let equal = self.columns.iter().chain(self.parity.iter()).all(|column| column.len() == length);
        assert!(equal, "all columns must have the same length, a multiple of the cell size");
    }

    /// Fills and encodes all rows.
    ///
    /// # Safety
    /// The contract of [`Code::encode_row_copy`].
    unsafe fn fill(&mut self) {
        self.check(self.shape.rows * self.shape.cell);
        for row in 0..self.shape.rows {
            let range = self.shape.cells(row);
            for column in 0..self.columns.len() {
                // SAFETY: the caller's contract.
                unsafe { self.fill_cell(column, row, range.clone()) };
            }
            if row >= self.shape.deferred {
                self.encode(range);
            }
        }
    }

    /// Fills the cell at this place of a column.
    ///
    /// # Safety
    /// The contract of [`Code::encode_row_copy`].
    #[inline]
    unsafe fn fill_cell(&mut self, column: usize, row: usize, range: Range<usize>) {
        let implementation = self.code.implementation();
        let index = column * self.shape.rows + row;
        let next = self.source_after(column, row);
        let cell = &mut self.columns[column][range];
        self.crcs[index] = match self.sources[index] {
            Source::InPlace => implementation.crc32c_append(0, cell),
            Source::Zero => {
                cell.fill(0);
                zero_crc(implementation, cell)
            }
            Source::Copy(source) => {
                let next = next.unwrap_or(source);
                // SAFETY: the caller's contract covers the source.
                unsafe { implementation.copy_crc32c(source, cell.as_mut_ptr(), cell.len(), next) }
            }
        };
    }

    /// Returns the source address of the cell that is processed after this one.
    #[inline]
    fn source_after(&self, column: usize, row: usize) -> Option<*const u8> {
        let below = (column + 1) * self.shape.rows + row;
        match self.sources.get(if column + 1 < self.columns.len() { below } else { row + 1 }) {
            Some(&Source::Copy(source)) => Some(source),
            _ => None,
        }
    }

    /// Computes the parity cells of a row with data cells at this place.
    fn encode(&mut self, range: Range<usize>) {
        self.code.encode_part(as_shared(self.columns), self.parity, range);
    }
}

/// Turns a slice of mutable slices into a slice of shared slices: both have the same
/// representation, and shared access is a subset of mutable access.
fn as_shared<'a>(slices: &'a [&mut [u8]]) -> &'a [&'a [u8]] {
    // SAFETY: both kinds of slice are an address and a length. The inner lifetime is shortened to
    // the outer one, during which nothing can be written through the original.
    unsafe { std::slice::from_raw_parts(slices.as_ptr().cast(), slices.len()) }
}

/// Returns the CRC-32C of a cell of zeros.
fn zero_crc(implementation: Implementation, cell: &[u8]) -> u32 {
    if cell.len() == COMMON_CELL { COMMON_ZERO_CRC } else { implementation.crc32c_append(0, cell) }
}

#[cfg(test)]
mod tests;
