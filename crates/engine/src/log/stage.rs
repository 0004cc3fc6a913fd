//! A record in memory, ready to be written: header, payload and parity, column by column.
//!
//! The payload is copied exactly once, because its owner (a guest) may change it at any time: the CRC and the parity
//! are those of the copy. Unused cells are zero, so that every row is a codeword (R2).
#![allow(unsafe_code)]

use codec::{Code, Source};
use format::limits::BLOCK;
use format::{Header, Item, PoolKey, RecordPlace, Scheme};
use reactor::{Buffer, Span};
use smallvec::SmallVec;

use super::request::Batch;
use crate::geometry::RecordLayout;

/// A record in memory.
pub(super) struct Stage {
    buffer: Buffer,
    /// CRC32C of each payload block.
    pub(super) crcs: Vec<u32>,
    column_bytes: usize,
    /// A mirror's columns all hold the same bytes, which are kept once.
    mirrored: bool,
}

impl Stage {
    /// Lays out a batch as a record of `scheme`.
    pub(super) fn new(
        batch: &Batch,
        scheme: Scheme,
        code: &Code,
        place: &RecordPlace,
        key: &PoolKey,
    ) -> Self {
        let layout = RecordLayout::new(scheme, place.row, batch.blocks());
        let rows = layout.rows as usize;
        let mirrored = scheme.data() == 1;
        let columns = if mirrored { 1 } else { usize::from(scheme.width()) };
        let mut stage = Self {
            buffer: Buffer::new(columns * rows * BLOCK),
            crcs: Vec::new(),
            column_bytes: rows * BLOCK,
            mirrored,
        };
        let shape =
            Shape { rows, data: usize::from(scheme.data()), header_blocks: batch.header_blocks as usize };
        let cells = shape.cells(batch);
        if mirrored {
            stage.copy(&shape, &cells, batch.payload as usize);
            stage.write_header(batch, place, key, &shape);
        } else {
            stage.copy_and_encode(&shape, code, &cells, batch.payload as usize);
            stage.write_header(batch, place, key, &shape);
            stage.encode_header_rows(&shape, code);
        }
        stage
    }

    /// What to write to a column.
    pub(super) fn column(&self, column: u8) -> Span {
        let start = if self.mirrored { 0 } else { usize::from(column) * self.column_bytes };
        self.buffer.span().slice(start..start + self.column_bytes)
    }

    /// Writes the header into its cells, which are zero: the first ones of the first column, one below the other.
    fn write_header(&mut self, batch: &Batch, place: &RecordPlace, key: &PoolKey, shape: &Shape) {
        let items: SmallVec<[Item; 64]> =
            batch.requests.iter().flat_map(|request| request.items.iter().copied()).collect();
        let cells = self.buffer.as_mut_slice().get_mut(..shape.header_blocks * BLOCK);
        let Some(cells) = cells else { panic!("a record has room for its header") };
        Header::encode(place, &items, &self.crcs, key, cells);
    }

    /// Fills the one column of a mirror: nothing is encoded.
    fn copy(&mut self, shape: &Shape, cells: &[Source], payload: usize) {
        self.crcs.reserve_exact(payload);
        for (cell, source) in self.buffer.as_mut_slice().chunks_exact_mut(BLOCK).zip(cells) {
            match source {
                // SAFETY: each source is a whole block of a span that the batch keeps alive.
                Source::Copy(at) => self.crcs.push(unsafe { codec::copy_crc32c_from(*at, cell) }),
                Source::Zero | Source::InPlace => cell.fill(0),
            }
        }
        assert_eq!(self.crcs.len(), payload, "a mirror of {} rows holds the whole payload", shape.rows);
    }

    /// Fills all cells, zero where they are the header's or nobody's, and encodes the rows that hold no header.
    fn copy_and_encode(&mut self, shape: &Shape, code: &Code, cells: &[Source], payload: usize) {
        let mut crcs: SmallVec<[u32; 512]> = SmallVec::from_elem(0, cells.len());
        let (mut data, mut parity) = columns(self.buffer.as_mut_slice(), shape);
        let held = shape.header_rows();
        // SAFETY: each source is a whole block of a span that the batch keeps alive, outside of our buffer.
        unsafe { code.encode_record_copy(BLOCK, held, cells, &mut data, &mut crcs, &mut parity) };
        let of_payload = crcs.get(shape.header_blocks..shape.header_blocks + payload);
        self.crcs = of_payload.map(<[u32]>::to_vec).unwrap_or_default();
        assert_eq!(self.crcs.len(), payload, "a record holds its whole payload");
    }

    /// Encodes the rows that had to wait for the header.
    fn encode_header_rows(&mut self, shape: &Shape, code: &Code) {
        let rows = ..shape.header_rows() * BLOCK;
        let (data, mut parity) = columns(self.buffer.as_mut_slice(), shape);
        let inputs: SmallVec<[&[u8]; 32]> = data.iter().filter_map(|column| column.get(rows)).collect();
        let mut outputs: Columns<'_> = parity.iter_mut().filter_map(|column| column.get_mut(rows)).collect();
        code.encode(&inputs, &mut outputs);
    }
}

/// The shape of a record.
struct Shape {
    rows: usize,
    data: usize,
    header_blocks: usize,
}

impl Shape {
    /// Rows that hold blocks of the header.
    fn header_rows(&self) -> usize {
        self.header_blocks.min(self.rows)
    }

    /// What the data cells are to hold, in the order of the blocks, which is column by column: the header's (for now)
    /// nothing, then the payload, then nothing.
    fn cells(&self, batch: &Batch) -> SmallVec<[Source; 512]> {
        let mut cells = SmallVec::from_elem(Source::Zero, self.header_blocks);
        for span in batch.requests.iter().flat_map(|request| &request.data) {
            assert!(span.len().is_multiple_of(BLOCK), "payload comes in whole blocks");
            let start = span.as_ptr().cast_const();
            let blocks = (0..span.len() / BLOCK).map(|index| start.wrapping_add(index * BLOCK));
            cells.extend(blocks.map(Source::Copy));
        }
        let payload = cells.len() - self.header_blocks;
        assert_eq!(payload, batch.payload as usize, "payload is as long as its items say");
        cells.resize(self.rows * self.data, Source::Zero);
        cells
    }
}

type Columns<'a> = SmallVec<[&'a mut [u8]; 32]>;

/// The data and parity columns of a record.
fn columns<'a>(bytes: &'a mut [u8], shape: &Shape) -> (Columns<'a>, Columns<'a>) {
    let mut data: Columns<'a> = bytes.chunks_exact_mut(shape.rows * BLOCK).collect();
    let parity = data.drain(shape.data..).collect();
    (data, parity)
}

#[cfg(test)]
#[path = "stage_tests.rs"]
mod tests;
