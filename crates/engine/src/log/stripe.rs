//! A record in memory, ready to be written: header, payload and parity, column by column.
//!
//! The payload is copied exactly once, because its owner (a guest) may change it at any time: the
//! CRC and the parity are those of the copy. Unused cells are zero, so that every row is a codeword
//! (R2). The rows of the header are encoded last, because it holds the CRCs of all others.
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

/// The columns of a record.
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
        assert!(shape.header_blocks > 0, "every record has a header");
        assert!(batch.blocks() as usize <= shape.rows * shape.data, "R2: the rows hold the whole record");
        let cells = shape.cells(batch);
        let crcs = vec![0; cells.len()];
        Self { batch, code, shape, cells, crcs }
    }

    /// Builds the columns. The header's rows are encoded last, because the header holds the CRCs of
    /// the payload.
    pub(super) fn build(&mut self, place: &RecordLocation, key: &PoolKey) -> StripeColumns {
        let column_bytes = self.shape.rows * BLOCK;
        assert_eq!(self.cells.len(), self.shape.rows * self.shape.data, "R2: every cell has a source");
        let mut buffer = Buffer::new(self.shape.columns * column_bytes);
        let header_rows = self.shape.header_rows();
        let mirrored = self.shape.data == 1;
        if mirrored {
            self.copy(buffer.as_mut_slice());
        } else {
            self.copy_and_encode(header_rows, buffer.as_mut_slice());
        }
        self.write_header(place, key, buffer.as_mut_slice());
        if !mirrored {
            self.encode_rows(header_rows, column_bytes, buffer.as_mut_slice());
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

    /// Fills all cells, with zeros for header and unused cells, and encodes all rows but the first
    /// `header_rows`.
    fn copy_and_encode(&mut self, header_rows: usize, bytes: &mut [u8]) {
        let (mut data, mut parity) = columns(bytes, self.shape.rows * BLOCK, self.shape.data);
        let (cells, crcs) = (&self.cells, &mut self.crcs);
        // SAFETY: each source is a whole block of a span that the batch keeps alive, outside of
        // `bytes`.
        unsafe {
            self.code.encode_record_copy(BLOCK, header_rows, cells, &mut data, crcs, &mut parity);
        }
    }

    /// Encodes the first rows, after the header was written.
    fn encode_rows(&self, count: usize, column_bytes: usize, bytes: &mut [u8]) {
        let rows = ..count * BLOCK;
        let (data, mut parity) = columns(bytes, column_bytes, self.shape.data);
        let inputs: SmallVec<[&[u8]; 32]> = data.iter().filter_map(|column| column.get(rows)).collect();
        assert_eq!(inputs.len(), self.shape.data, "R2: the parity covers every data column");
        let mut outputs: Columns<'_> = parity.iter_mut().filter_map(|column| column.get_mut(rows)).collect();
        self.code.encode(&inputs, &mut outputs);
    }
}

impl StripeColumns {
    /// Returns the bytes to write to a column.
    pub(super) fn column(&self, column: u8) -> Span {
        self.buffer.span().slice(self.place(usize::from(column)))
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
    assert!(columns.len() >= data, "R2: a record has all data columns");
    let parity = columns.drain(data..).collect();
    (columns, parity)
}

#[cfg(test)]
#[path = "stripe_tests.rs"]
mod tests;
