//! A record in memory, ready to be written: header, payload and parity, column by column.
//!
//! The payload is copied exactly once, because its owner (a guest) may change it at any time: the
//! CRC and the parity are those of the copy. Unused cells are zero, so that every row is a codeword
//! (R2). A record is either built as a whole, or row by row in one buffer; the rows of the header
//! come last, because it holds the CRCs of all others.
#![allow(unsafe_code)]

use std::ops::Range;

use codec::{Code, Source};
use format::limits::BLOCK;
use format::{Header, Item, PoolKey, RecordLocation, Scheme};
use reactor::{Buffer, Span};
use smallvec::SmallVec;

use super::request::Batch;
use crate::geometry::RecordLayout;

/// Builds the columns of a record.
pub(super) struct StripeBuilder<'a> {
    batch: &'a Batch,
    code: &'a Code,
    shape: RecordShape,
    /// The source of each data cell, in the order of the blocks, which is column by column.
    cells: Cells,
    /// CRC32C of each cell that was built so far.
    crcs: Vec<u32>,
}

/// Inline storage for short records; longer ones are allocated.
type Cells = SmallVec<[Source; 16]>;

/// The columns of the first rows of a record, or of all rows.
pub(super) struct StripeColumns {
    buffer: Buffer,
    column_bytes: usize,
    /// The columns of a mirror hold the same bytes, which are stored once.
    mirrored: bool,
}

impl<'a> StripeBuilder<'a> {
    /// Prepares a batch as a record of `scheme`; nothing is copied yet.
    pub(super) fn new(batch: &'a Batch, scheme: Scheme, code: &'a Code, layout: RecordLayout) -> Self {
        let data = usize::from(scheme.data());
        let shape = RecordShape {
            rows: layout.rows as usize,
            data,
            columns: if data == 1 { 1 } else { usize::from(scheme.width()) },
            header_blocks: batch.header_blocks as usize,
        };
        let cells = shape.cells(batch);
        let crcs = vec![0; cells.len()];
        Self { batch, code, shape, cells, crcs }
    }

    /// Returns the number of rows of the record.
    pub(super) fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Returns the number of first rows that are built in one buffer: those of the header, or all
    /// rows of a mirror, whose columns are short and equal.
    pub(super) fn buffered_rows(&self) -> usize {
        if self.shape.data == 1 { self.shape.rows } else { self.shape.header_rows() }
    }

    /// Builds the remaining rows one after the other in a buffer that stays in the L1 cache. `take`
    /// receives each cell with its column and row.
    pub(super) fn emit_remaining(&mut self, take: impl FnMut(usize, usize, &[u8])) {
        let rows = self.buffered_rows()..self.shape.rows;
        if rows.is_empty() {
            return;
        }
        let mut row = Buffer::new(self.shape.columns * BLOCK);
        // SAFETY: each source is a whole block of a span that the batch keeps alive, outside of our
        // buffer.
        unsafe {
            self.code.encode_rows_copy(rows, &self.cells, row.as_mut_slice(), &mut self.crcs, take);
        }
    }

    /// Builds the first `count` rows, at least those of the header, after all others.
    pub(super) fn build(&mut self, count: usize, place: &RecordLocation, key: &PoolKey) -> StripeColumns {
        let column_bytes = count * BLOCK;
        let mut buffer = Buffer::new(self.shape.columns * column_bytes);
        let buffered_rows = self.shape.header_rows();
        assert!(
            buffered_rows <= count && count <= self.shape.rows,
            "the header's rows are laid out together"
        );
        let mirrored = self.shape.data == 1;
        if mirrored {
            self.copy(buffer.as_mut_slice());
        } else {
            self.copy_and_encode(count, buffered_rows, buffer.as_mut_slice());
        }
        self.write_header(place, key, buffer.as_mut_slice());
        if !mirrored {
            self.encode_rows(buffered_rows, column_bytes, buffer.as_mut_slice());
        }
        StripeColumns { buffer, column_bytes, mirrored }
    }

    /// Returns the CRC32C of each payload block of a complete record.
    fn crcs(&self) -> &[u32] {
        let header = self.shape.header_blocks;
        match self.crcs.get(header..header + self.batch.payload as usize) {
            Some(crcs) => crcs,
            None => panic!("a record holds its whole payload"),
        }
    }

    /// Returns the CRC32C of each payload block, and consumes the builder.
    pub(super) fn into_crcs(mut self) -> Vec<u32> {
        let count = self.crcs().len();
        self.crcs.drain(..self.shape.header_blocks);
        self.crcs.truncate(count);
        self.crcs
    }

    /// Writes the header into its cells, which are zero: the first rows of the first column.
    fn write_header(&self, place: &RecordLocation, key: &PoolKey, bytes: &mut [u8]) {
        let items: SmallVec<[Item; 64]> =
            self.batch.requests.iter().flat_map(|request| request.items.iter().copied()).collect();
        let cells = bytes.get_mut(..self.shape.header_blocks * BLOCK);
        let Some(cells) = cells else { panic!("a record has room for its header") };
        Header::encode(place, &items, self.crcs(), key, cells);
    }

    /// Fills the single stored column of a mirror; there is no parity.
    fn copy(&mut self, bytes: &mut [u8]) {
        for ((cell, source), crc) in bytes.chunks_exact_mut(BLOCK).zip(&self.cells).zip(&mut self.crcs) {
            match source {
                // SAFETY: each source is a whole block of a span that the batch keeps alive.
                Source::Copy(at) => *crc = unsafe { codec::copy_crc32c_from(*at, cell) },
                Source::Zero | Source::InPlace => cell.fill(0),
            }
        }
    }

    /// Fills all cells of the first `count` rows, with zeros for header and unused cells, and
    /// encodes all but the first `buffered_rows` of them, which hold the header.
    fn copy_and_encode(&mut self, count: usize, buffered_rows: usize, bytes: &mut [u8]) {
        let (mut data, mut parity) = columns(bytes, count * BLOCK, self.shape.data);
        if count == self.shape.rows {
            // SAFETY: each source is a whole block of a span that the batch keeps alive, outside of
            // `bytes`.
            unsafe {
                let (cells, crcs) = (&self.cells, &mut self.crcs);
                self.code.encode_record_copy(BLOCK, buffered_rows, cells, &mut data, crcs, &mut parity);
            }
            return;
        }
        let first_of = |column: &[Source]| column.iter().copied().take(count).collect::<SmallVec<[_; 8]>>();
        let cells: SmallVec<[Source; 32]> =
            self.cells.chunks_exact(self.shape.rows).flat_map(first_of).collect();
        let mut crcs: SmallVec<[u32; 32]> = SmallVec::from_elem(0, cells.len());
        // SAFETY: as above.
        unsafe {
            self.code.encode_record_copy(BLOCK, buffered_rows, &cells, &mut data, &mut crcs, &mut parity)
        };
        let all = self.crcs.chunks_exact_mut(self.shape.rows);
        for (all, first) in all.zip(crcs.chunks_exact(count)) {
            all.iter_mut().zip(first).for_each(|(place, crc)| *place = *crc);
        }
    }

    /// Encodes the first rows, after the header was written.
    fn encode_rows(&self, count: usize, column_bytes: usize, bytes: &mut [u8]) {
        let rows = ..count * BLOCK;
        let (data, mut parity) = columns(bytes, column_bytes, self.shape.data);
        let inputs: SmallVec<[&[u8]; 32]> = data.iter().filter_map(|column| column.get(rows)).collect();
        let mut outputs: Columns<'_> = parity.iter_mut().filter_map(|column| column.get_mut(rows)).collect();
        self.code.encode(&inputs, &mut outputs);
    }
}

impl StripeColumns {
    /// Returns the bytes to write to a column.
    pub(super) fn column(&self, column: u8) -> Span {
        self.buffer.span().slice(self.place(usize::from(column)))
    }

    /// Returns the bytes of a column, before any span of it was handed out.
    pub(super) fn bytes(&self, column: usize) -> &[u8] {
        match self.buffer.as_slice().get(self.place(column)) {
            Some(bytes) => bytes,
            None => panic!("a record has as many columns as its segment"),
        }
    }

    fn place(&self, column: usize) -> Range<usize> {
        let start = if self.mirrored { 0 } else { column * self.column_bytes };
        start..start + self.column_bytes
    }
}

/// The shape of a record.
struct RecordShape {
    rows: usize,
    data: usize,
    /// Columns that are stored.
    columns: usize,
    header_blocks: usize,
}

impl RecordShape {
    /// Returns the number of rows that hold header blocks.
    fn header_rows(&self) -> usize {
        self.header_blocks.min(self.rows)
    }

    /// Returns the sources of the data cells, in the order of the blocks, which is column by
    /// column: zeros for the header (for now), then the payload, then zeros.
    fn cells(&self, batch: &Batch) -> Cells {
        let mut cells = Cells::with_capacity(self.rows * self.data);
        cells.resize(self.header_blocks, Source::Zero);
        for span in batch.requests.iter().flat_map(|request| &request.data) {
            assert!(span.len().is_multiple_of(BLOCK), "the payload is whole blocks");
            let start = span.as_ptr().cast_const();
            let blocks = (0..span.len() / BLOCK).map(|index| start.wrapping_add(index * BLOCK));
            cells.extend(blocks.map(Source::Copy));
        }
        let payload = cells.len() - self.header_blocks;
        assert_eq!(payload, batch.payload as usize, "the payload has the length that its items list");
        cells.resize(self.rows * self.data, Source::Zero);
        cells
    }
}

type Columns<'a> = SmallVec<[&'a mut [u8]; 32]>;

/// Splits rows into their data and parity columns.
fn columns(bytes: &mut [u8], column_bytes: usize, data: usize) -> (Columns<'_>, Columns<'_>) {
    let mut columns: Columns<'_> = bytes.chunks_exact_mut(column_bytes).collect();
    let parity = columns.drain(data..).collect();
    (columns, parity)
}

#[cfg(test)]
#[path = "stripe_tests.rs"]
mod tests;
