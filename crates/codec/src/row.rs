//! The write path's one pass: copy the data cells of a row, checksum each, and make the parity cells.
//!
//! Owns the shape of that call. After it, each CRC and each parity byte is that of the cells as they are in memory,
//! whatever the sources did meanwhile. Must not know what is in a cell.
#![allow(unsafe_code)]

use crate::{Code, MAX_COLUMNS};

/// What a data cell of a row is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Zeros: the cell is not used.
    Zero,
    /// What it holds already.
    InPlace,
    /// A copy of the bytes from this address on, which others may be changing meanwhile.
    Copy(*const u8),
}

/// One row's cells, checked to be of one shape.
pub(crate) struct Row<'a, 'b, 'c> {
    /// k of them.
    pub(crate) sources: &'a [Source],
    /// k of one length.
    pub(crate) cells: &'a mut [&'b mut [u8]],
    /// k of them.
    pub(crate) crcs: &'a mut [u32],
    /// m of the cells' length.
    pub(crate) parity: &'a mut [&'c mut [u8]],
}

impl Code {
    /// Fills the k data cells of a row from their sources, gives the CRC-32C of each, and computes the m parity cells, in
    /// one pass over the data. Each source is read once, so that copy, checksum and parity agree even if it changes.
    ///
    /// Cells are any equal length (bytes), usually 4096; multiples of 64 go fastest.
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
        let (k, m) = (usize::from(self.data_columns()), usize::from(self.parity_columns()));
        let length = cells.first().map_or(0, |cell| cell.len());
        assert!(sources.len() == k && cells.len() == k && crcs.len() == k, "k sources, cells and sums");
        assert_eq!(parity.len(), m, "m parity cells");
        assert!(cells.iter().all(|cell| cell.len() == length), "all cells of one length");
        assert!(parity.iter().all(|cell| cell.len() == length), "all cells of one length");
        // SAFETY: the caller's contract is the callee's, and the shapes are checked.
        unsafe { self.implementation().encode_row(self.generator(), Row { sources, cells, crcs, parity }) };
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
        let mut pointers = [Source::Zero; MAX_COLUMNS];
        assert_eq!(sources.len(), cells.len(), "as many sources as cells");
        for ((pointer, source), cell) in pointers.iter_mut().zip(sources).zip(cells.iter()) {
            if let Some(source) = source {
                assert_eq!(source.len(), cell.len(), "a copy is as long as what is copied");
                *pointer = Source::Copy(source.as_ptr());
            }
        }
        let pointers = pointers.get(..sources.len()).expect("at most MAX_COLUMNS sources");
        // SAFETY: a slice is readable for its length, and no shared slice overlaps a mutable one.
        unsafe { self.encode_row_copy(pointers, cells, crcs, parity) };
    }
}
