//! The write path's one call: copy the data cells of a record, checksum each, and make the parity cells.
//!
//! Owns the order of the work. After it, each CRC and each parity byte is that of the cells as they are in memory,
//! whatever the sources did meanwhile. Must not know what is in a cell.
//!
//! The order is the one that measured best (comparison/README.md): each cell is copied and checksummed in one pass
//! while the next cell's source is fetched into the cache, and each row is encoded when its cells have just been
//! copied.
#![allow(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "all shapes are checked before the first index is made")]

use std::ops::Range;

use crate::{Code, Implementation, MAX_COLUMNS};

/// What a data cell is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeros: the cell is not used.
    Zero,
    /// What it holds already.
    InPlace,
    /// A copy of the bytes from this address on, which others may be changing meanwhile.
    Copy(*const u8),
}

/// The length of a cell whose checksum, when it is all zeros, is known beforehand.
const COMMON_CELL: usize = 4096;
/// That checksum.
const COMMON_ZERO_CRC: u32 = zeros_crc(COMMON_CELL);

const fn zeros_crc(length: usize) -> u32 {
    let mut register = !0;
    let mut bit = 0;
    while bit < 8 * length {
        register = crate::checksum::times_x(register);
        bit += 1;
    }
    !register
}

impl Code {
    /// Fills the k data cells of one row from their sources, gives the CRC-32C of each, and computes the m parity
    /// cells. Each source is read once, so that copy, checksum and parity agree even if it changes.
    ///
    /// Cells are any equal length (bytes), usually 4096; multiples of 256 go fastest.
    ///
    /// # Safety
    /// Each [`Source::Copy`] must be valid for reads of a cell's length and overlap no cell, data or parity. It
    /// may be written by another process or a guest during the call, and by another thread of this one only with
    /// atomic or volatile writes.
    ///
    /// # Panics
    /// If there are not k sources, k cells, k CRCs and m parity cells, or the cells are not all of one length.
    pub unsafe fn encode_row_copy(
        &self,
        sources: &[Source],
        cells: &mut [&mut [u8]],
        crcs: &mut [u32],
        parity: &mut [&mut [u8]],
    ) {
        let cell = cells.first().map_or(0, |cell| cell.len());
        let shape = Shape { cell, rows: 1, held: 0 };
        // SAFETY: the caller's contract.
        unsafe { Record { code: self, shape, sources, columns: cells, crcs, parity }.fill() };
    }

    /// As [`Code::encode_row_copy`] from plain slices, `None` for a cell of zeros.
    ///
    /// # Panics
    /// As there, and if a source is not as long as a cell.
    pub fn encode_row(
        &self,
        sources: &[Option<&[u8]>],
        cells: &mut [&mut [u8]],
        crcs: &mut [u32],
        parity: &mut [&mut [u8]],
    ) {
        assert_eq!(sources.len(), cells.len(), "as many sources as cells");
        assert!(sources.len() <= MAX_COLUMNS, "k sources");
        let mut pointers = [Source::Zero; MAX_COLUMNS];
        for ((pointer, source), cell) in pointers.iter_mut().zip(sources).zip(cells.iter()) {
            if let Some(source) = source {
                assert_eq!(source.len(), cell.len(), "a copy is as long as what is copied");
                *pointer = Source::Copy(source.as_ptr());
            }
        }
        // SAFETY: a slice is readable for its length, and no shared slice overlaps a mutable one.
        unsafe { self.encode_row_copy(&pointers[..sources.len()], cells, crcs, parity) };
    }

    /// Does all rows of a record at once, which is faster than row by row: the next row's sources are fetched
    /// early.
    ///
    /// Cells are `cell` bytes, not 0. `columns` are the k data and `parity` the m parity columns of the record,
    /// each the same number R of cells long, one after the other. `sources` and `crcs` are k * R, by column and
    /// then by row: data cell (column c, row r) is number c * R + r of both.
    ///
    /// All data cells are filled and checksummed. The first `held` rows are not encoded: they are for the caller,
    /// who writes something into their cells that he only knows now (a header with the checksums), and then
    /// encodes them with [`Code::encode`].
    ///
    /// # Safety
    /// As [`Code::encode_row_copy`].
    ///
    /// # Panics
    /// If a shape is not as said.
    pub unsafe fn encode_record_copy(
        &self,
        cell: usize,
        held: usize,
        sources: &[Source],
        columns: &mut [&mut [u8]],
        crcs: &mut [u32],
        parity: &mut [&mut [u8]],
    ) {
        assert!(cell > 0, "a record's cells hold something");
        let rows = columns.first().map_or(0, |column| column.len()) / cell;
        assert!(held <= rows, "rows held back are rows of the record");
        let shape = Shape { cell, rows, held };
        // SAFETY: the caller's contract.
        unsafe { Record { code: self, shape, sources, columns, crcs, parity }.fill() };
    }

    /// Does some rows of a record one after the other in the same memory, `row`, of k + m cells. When one is done, `take` is given
    /// each of its cells, with the numbers of its column and row: who copies them on from there does so while they are in the
    /// first-level cache, and nothing of the record is ever in memory but there and where it goes.
    ///
    /// `sources` and `crcs` are those of the whole record, as in [`Code::encode_record_copy`]; only those of the rows are used and set.
    ///
    /// # Safety
    /// As [`Code::encode_row_copy`], of sources in these rows.
    ///
    /// # Panics
    /// If a shape is not as said, the rows are not the record's, or one of their sources is [`Source::InPlace`].
    pub unsafe fn encode_rows_copy(
        &self,
        rows: Range<usize>,
        sources: &[Source],
        row: &mut [u8],
        crcs: &mut [u32],
        take: impl FnMut(usize, usize, &[u8]),
    ) {
        let (k, width) = (usize::from(self.data_columns()), usize::from(self.columns()));
        let cell = row.len() / width;
        assert!(cell > 0, "a record's cells hold something");
        let shape = Shape { cell, rows: sources.len() / k, held: 0 };
        assert!(rows.end <= shape.rows, "rows of the record");
        let mut cells = row.chunks_exact_mut(cell);
        let mut cells: [&mut [u8]; MAX_COLUMNS] = std::array::from_fn(|_| cells.next().unwrap_or_default());
        let (columns, parity) = cells[..width].split_at_mut(k);
        // SAFETY: the caller's contract.
        unsafe { Record { code: self, shape, sources, columns, crcs, parity }.fill_rows(rows, take) };
    }
}

/// How many cells of what size.
#[derive(Clone, Copy)]
struct Shape {
    /// Bytes.
    cell: usize,
    rows: usize,
    /// Rows at the start that are not encoded.
    held: usize,
}

impl Shape {
    /// Where a row's cells are in their columns.
    fn cells(self, row: usize) -> Range<usize> {
        row * self.cell..(row + 1) * self.cell
    }
}

/// A record whose shapes have been checked.
struct Record<'a, 'd, 'p> {
    code: &'a Code,
    shape: Shape,
    sources: &'a [Source],
    columns: &'a mut [&'d mut [u8]],
    crcs: &'a mut [u32],
    parity: &'a mut [&'p mut [u8]],
}

impl Record<'_, '_, '_> {
    /// All shapes, where the columns are `length` bytes long.
    fn check(&self, length: usize) {
        let (k, m) = (usize::from(self.code.data_columns()), usize::from(self.code.parity_columns()));
        let cells = k * self.shape.rows;
        assert!(self.columns.len() == k && self.parity.len() == m, "k data and m parity columns");
        assert!(self.sources.len() == cells && self.crcs.len() == cells, "a source and a sum for each cell");
        let equal = self.columns.iter().chain(self.parity.iter()).all(|column| column.len() == length);
        assert!(equal, "all columns are of one length, whole cells");
    }

    /// # Safety
    /// As [`Code::encode_row_copy`].
    unsafe fn fill(&mut self) {
        self.check(self.shape.rows * self.shape.cell);
        for row in 0..self.shape.rows {
            let place = self.shape.cells(row);
            for column in 0..self.columns.len() {
                // SAFETY: the caller's contract.
                unsafe { self.fill_cell(column, row, place.clone()) };
            }
            if row >= self.shape.held {
                self.encode(place);
            }
        }
    }

    /// Where the columns have room for one cell, which each row has in its turn.
    ///
    /// # Safety
    /// As [`Code::encode_row_copy`].
    unsafe fn fill_rows(&mut self, rows: Range<usize>, mut take: impl FnMut(usize, usize, &[u8])) {
        let place = self.shape.cells(0);
        self.check(place.len());
        for row in rows {
            for column in 0..self.columns.len() {
                let source = self.sources[column * self.shape.rows + row];
                assert!(source != Source::InPlace, "a cell that others had holds nothing of its own");
                // SAFETY: the caller's contract.
                unsafe { self.fill_cell(column, row, place.clone()) };
            }
            self.encode(place.clone());
            let cells = self.columns.iter().chain(self.parity.iter()).enumerate();
            cells.for_each(|(column, cell)| take(column, row, cell));
        }
    }

    /// Fills the cell at this place of a column.
    ///
    /// # Safety
    /// As [`Code::encode_row_copy`].
    #[inline]
    unsafe fn fill_cell(&mut self, column: usize, row: usize, place: Range<usize>) {
        let implementation = self.code.implementation();
        let index = column * self.shape.rows + row;
        let next = self.source_after(column, row);
        let cell = &mut self.columns[column][place];
        self.crcs[index] = match self.sources[index] {
            Source::InPlace => implementation.crc32c_append(0, cell),
            Source::Zero => {
                cell.fill(0);
                zero_crc(implementation, cell)
            }
            Source::Copy(source) => {
                let next = next.unwrap_or(source);
                // SAFETY: the source is as the caller's contract says.
                unsafe { implementation.copy_crc32c(source, cell.as_mut_ptr(), cell.len(), next) }
            }
        };
    }

    /// The address that the cell after this one, in the order of the work, is copied from.
    #[inline]
    fn source_after(&self, column: usize, row: usize) -> Option<*const u8> {
        let below = (column + 1) * self.shape.rows + row;
        match self.sources.get(if column + 1 < self.columns.len() { below } else { row + 1 }) {
            Some(&Source::Copy(source)) => Some(source),
            _ => None,
        }
    }

    /// Makes the parity cells of a row whose data cells are at this place.
    fn encode(&mut self, place: Range<usize>) {
        self.code.encode_part(as_shared(self.columns), self.parity, place);
    }
}

/// Mutable slices behind a shared reference are shared slices: the same in memory, and all that can be done with
/// them.
fn as_shared<'a>(slices: &'a [&mut [u8]]) -> &'a [&'a [u8]] {
    // SAFETY: both kinds of slice are an address and a length, and the inner lifetime is shortened to the outer
    // one, during which nothing can be written through the original.
    unsafe { std::slice::from_raw_parts(slices.as_ptr().cast(), slices.len()) }
}

/// The CRC-32C of a cell of zeros.
fn zero_crc(implementation: Implementation, cell: &[u8]) -> u32 {
    if cell.len() == COMMON_CELL { COMMON_ZERO_CRC } else { implementation.crc32c_append(0, cell) }
}

#[cfg(test)]
mod tests;
