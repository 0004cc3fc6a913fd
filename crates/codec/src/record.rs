//! The write path's one call: copy the data cells of a record, checksum each, and make the parity cells.
//!
//! Owns the order of the work. After it, each CRC and each parity byte is that of the cells as they are in memory, whatever
//! the sources did meanwhile. Must not know what is in a cell.
//!
//! The order is the one that measured best (comparison/README.md): each cell is copied and checksummed in one pass while
//! the next cell's source is fetched into the cache, and each row is encoded when its cells have just been copied.
#![allow(unsafe_code)]
#![allow(clippy::indexing_slicing, reason = "all shapes are checked before the first index is made")]

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
/// That checksum: the register after so many zero bits is the inverted x^n mod P, n more than the 32 it starts with.
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
    /// Fills the k data cells of one row from their sources, gives the CRC-32C of each, and computes the m parity cells.
    /// Each source is read once, so that copy, checksum and parity agree even if it changes.
    ///
    /// Cells are any equal length (bytes), usually 4096; multiples of 256 go fastest.
    ///
    /// # Safety
    /// Each [`Source::Copy`] must be valid for reads of a cell's length and overlap no cell, data or parity. It may be
    /// written by another process or a guest during the call, and by another thread of this one only with atomic or
    /// volatile writes.
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
        let record = Record::new(self, Shape { cell, rows: 1, held: 0 }, sources, cells, crcs, parity);
        // SAFETY: the caller's contract.
        unsafe { record.fill(self) };
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

    /// Does all rows of a record at once, which is faster than row by row: the next row's sources are fetched early.
    ///
    /// Cells are `cell` bytes, not 0. `columns` are the k data and `parity` the m parity columns of the record, each the
    /// same number R of cells long, one after the other. `sources` and `crcs` are k * R, by column and then by row: data
    /// cell (column c, row r) is number c * R + r of both.
    ///
    /// All data cells are filled and checksummed. The first `held` rows are not encoded: they are for the caller, who
    /// writes something into their cells that he only knows now (a header with the checksums), and then encodes them with
    /// [`Code::encode`].
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
        let record = Record::new(self, Shape { cell, rows, held }, sources, columns, crcs, parity);
        // SAFETY: the caller's contract.
        unsafe { record.fill(self) };
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

/// A record whose shapes have been checked: columns as addresses, valid for `rows` cells.
struct Record<'a> {
    shape: Shape,
    sources: &'a [Source],
    crcs: &'a mut [u32],
    columns: [*mut u8; MAX_COLUMNS],
    parity: [*mut u8; MAX_COLUMNS],
}

impl<'a> Record<'a> {
    fn new(
        code: &Code,
        shape: Shape,
        sources: &'a [Source],
        columns: &'a mut [&mut [u8]],
        crcs: &'a mut [u32],
        parity: &'a mut [&mut [u8]],
    ) -> Self {
        let (k, m) = (usize::from(code.data_columns()), usize::from(code.parity_columns()));
        assert!(columns.len() == k && parity.len() == m, "k data and m parity columns");
        assert!(
            sources.len() == k * shape.rows && crcs.len() == sources.len(),
            "a source and a sum for each cell"
        );
        Self { shape, sources, crcs, columns: addresses(columns, shape), parity: addresses(parity, shape) }
    }

    /// # Safety
    /// As [`Code::encode_row_copy`].
    unsafe fn fill(mut self, code: &Code) {
        let k = usize::from(code.data_columns());
        for row in 0..self.shape.rows {
            for column in 0..k {
                let next = self.source_after(column, row, k);
                // SAFETY: the caller's contract.
                unsafe { self.fill_cell(code.implementation(), column, row, next) };
            }
            if row >= self.shape.held {
                self.encode(code, row);
            }
        }
    }

    /// Makes the parity cells of a row whose data cells are there.
    fn encode(&mut self, code: &Code, row: usize) {
        let (k, m) = (usize::from(code.data_columns()), usize::from(code.parity_columns()));
        let (offset, length) = (row * self.shape.cell, self.shape.cell);
        let mut cells: [&[u8]; MAX_COLUMNS] = [&[]; MAX_COLUMNS];
        for (cell, column) in cells.iter_mut().zip(&self.columns[..k]) {
            // SAFETY: the first k columns were checked to have this cell, and only shared slices of it are made here.
            *cell = unsafe { std::slice::from_raw_parts(column.add(offset), length) };
        }
        let mut parity: [&mut [u8]; MAX_COLUMNS] = std::array::from_fn(|_| Default::default());
        for (cell, column) in parity.iter_mut().zip(&self.parity[..m]) {
            // SAFETY: the first m columns were checked to have this cell, and mutable columns overlap nothing.
            *cell = unsafe { std::slice::from_raw_parts_mut(column.add(offset), length) };
        }
        code.encode(&cells[..k], &mut parity[..m]);
    }

    /// The source that follows that of a cell in the order of the work; if there is none, its own, which costs nothing
    /// to fetch.
    fn source_after(&self, column: usize, row: usize, k: usize) -> *const u8 {
        let here = column * self.shape.rows + row;
        let next = if column + 1 < k { here + self.shape.rows } else { row + 1 };
        [next, here]
            .into_iter()
            .find_map(|index| match self.sources.get(index) {
                Some(Source::Copy(source)) => Some(*source),
                _ => None,
            })
            .unwrap_or(std::ptr::null())
    }

    /// # Safety
    /// As [`Code::encode_row_copy`].
    unsafe fn fill_cell(
        &mut self,
        implementation: Implementation,
        column: usize,
        row: usize,
        next: *const u8,
    ) {
        let length = self.shape.cell;
        let cell = self.columns[column].wrapping_add(row * length);
        let index = column * self.shape.rows + row;
        // SAFETY: the cell is within its column; the source is the caller's contract.
        self.crcs[index] = unsafe {
            match self.sources[index] {
                Source::Copy(source) => implementation.copy_crc32c(source, cell, length, next),
                Source::InPlace => implementation.crc32c_append(0, std::slice::from_raw_parts(cell, length)),
                Source::Zero => {
                    cell.write_bytes(0, length);
                    zero_crc(implementation, std::slice::from_raw_parts(cell, length))
                }
            }
        };
    }
}

/// The addresses of columns, which are all as long as the shape says.
fn addresses(columns: &mut [&mut [u8]], shape: Shape) -> [*mut u8; MAX_COLUMNS] {
    let mut addresses = [std::ptr::null_mut(); MAX_COLUMNS];
    for (address, column) in addresses.iter_mut().zip(columns) {
        assert_eq!(column.len(), shape.rows * shape.cell, "all columns are of one length, whole cells");
        *address = column.as_mut_ptr();
    }
    addresses
}

/// The CRC-32C of a cell of zeros.
fn zero_crc(implementation: Implementation, cell: &[u8]) -> u32 {
    if cell.len() == COMMON_CELL { COMMON_ZERO_CRC } else { implementation.crc32c_append(0, cell) }
}

#[cfg(test)]
mod tests;
