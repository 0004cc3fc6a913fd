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
            crcs: vec![0; batch.payload as usize],
            column_bytes: rows * BLOCK,
            mirrored,
        };
        let sources = payload_blocks(batch);
        let header_blocks = batch.header_blocks as usize;
        let shape = Shape { rows, data: usize::from(scheme.data()), header_blocks };
        if mirrored {
            stage.copy_blocks(&shape, &sources);
            stage.write_header(batch, place, key, &shape);
        } else {
            stage.copy_and_encode(&shape, code, &sources, header_blocks.min(rows)..rows);
            stage.copy_header_rows(&shape, &sources);
            stage.write_header(batch, place, key, &shape);
            stage.encode_rows(&shape, code, 0..header_blocks.min(rows));
        }
        stage
    }

    /// What to write to a column.
    pub(super) fn column(&self, column: u8) -> Span {
        let start = if self.mirrored { 0 } else { usize::from(column) * self.column_bytes };
        self.buffer.span().slice(start..start + self.column_bytes)
    }

    fn write_header(&mut self, batch: &Batch, place: &RecordPlace, key: &PoolKey, shape: &Shape) {
        let items: SmallVec<[Item; 64]> =
            batch.requests.iter().flat_map(|request| request.items.iter().copied()).collect();
        let mut header = SmallVec::<[u8; BLOCK]>::from_elem(0, shape.header_blocks * BLOCK);
        Header::encode(place, &items, &self.crcs, key, &mut header);
        for (index, block) in header.chunks_exact(BLOCK).enumerate() {
            let at = shape.offset(index);
            if let Some(cell) = self.buffer.as_mut_slice().get_mut(at..at + BLOCK) {
                cell.copy_from_slice(block);
            }
        }
    }

    /// Copies all payload blocks to their cells: for records without parity to compute.
    fn copy_blocks(&mut self, shape: &Shape, sources: &[*const u8]) {
        let bytes = self.buffer.as_mut_slice();
        for (index, (source, crc)) in sources.iter().zip(&mut self.crcs).enumerate() {
            let at = shape.offset(shape.header_blocks + index);
            if let Some(cell) = bytes.get_mut(at..at + BLOCK) {
                // SAFETY: each source is a whole block of a span that the batch keeps alive.
                *crc = unsafe { codec::copy_crc32c_from(*source, cell) };
            }
        }
    }

    /// Fills rows that hold no header: copies, checksums and parity in one pass.
    fn copy_and_encode(
        &mut self,
        shape: &Shape,
        code: &Code,
        sources: &[*const u8],
        rows: std::ops::Range<usize>,
    ) {
        let mut crcs: SmallVec<[u32; 32]> = SmallVec::from_elem(0, shape.data);
        for row in rows {
            let cells = (0..shape.data).map(|column| shape.payload_index(column, row));
            let from: SmallVec<[Source; 32]> = cells
                .clone()
                .map(|index| {
                    index.and_then(|index| sources.get(index)).map_or(Source::Zero, |at| Source::Copy(*at))
                })
                .collect();
            let (mut data, mut parity) = row_cells(self.buffer.as_mut_slice(), shape, row);
            // SAFETY: each source is a whole block of a span that the batch keeps alive, outside of our buffer.
            unsafe { code.encode_row_copy(&from, &mut data, &mut crcs, &mut parity) };
            for (index, crc) in cells.zip(&crcs) {
                if let Some(place) = index.and_then(|index| self.crcs.get_mut(index)) {
                    *place = *crc;
                }
            }
        }
    }

    /// Copies the payload blocks that share rows with the header.
    fn copy_header_rows(&mut self, shape: &Shape, sources: &[*const u8]) {
        for row in 0..shape.header_blocks.min(shape.rows) {
            for column in 0..shape.data {
                let at = (column * shape.rows + row) * BLOCK;
                let Some(cell) = self.buffer.as_mut_slice().get_mut(at..at + BLOCK) else { continue };
                let index = shape.payload_index(column, row);
                match index.and_then(|index| Some((sources.get(index)?, self.crcs.get_mut(index)?))) {
                    // SAFETY: as above.
                    Some((source, crc)) => *crc = unsafe { codec::copy_crc32c_from(*source, cell) },
                    None => cell.fill(0),
                }
            }
        }
    }

    fn encode_rows(&mut self, shape: &Shape, code: &Code, rows: std::ops::Range<usize>) {
        for row in rows {
            let (data, mut parity) = row_cells(self.buffer.as_mut_slice(), shape, row);
            let data: SmallVec<[&[u8]; 32]> = data.iter().map(|cell| &**cell).collect();
            code.encode(&data, &mut parity);
        }
    }
}

/// The shape of a record.
struct Shape {
    rows: usize,
    data: usize,
    header_blocks: usize,
}

impl Shape {
    /// Byte of block `index` (header blocks first) in the stage.
    fn offset(&self, index: usize) -> usize {
        // Column-major order is the order of the blocks.
        index * BLOCK
    }

    /// The payload block in a cell, unless it holds the header. May lie beyond the last one.
    fn payload_index(&self, column: usize, row: usize) -> Option<usize> {
        (column * self.rows + row).checked_sub(self.header_blocks)
    }
}

type Cells<'a> = SmallVec<[&'a mut [u8]; 32]>;

/// The data and parity cells of a row.
fn row_cells<'a>(bytes: &'a mut [u8], shape: &Shape, row: usize) -> (Cells<'a>, Cells<'a>) {
    let columns = bytes.chunks_exact_mut(shape.rows * BLOCK);
    let mut cells: Cells<'a> =
        columns.filter_map(|column| column.get_mut(row * BLOCK..(row + 1) * BLOCK)).collect();
    let parity = cells.drain(shape.data..).collect();
    (cells, parity)
}

/// Addresses of the payload blocks, in order.
fn payload_blocks(batch: &Batch) -> SmallVec<[*const u8; 64]> {
    let mut blocks = SmallVec::with_capacity(batch.payload as usize);
    for span in batch.requests.iter().flat_map(|request| &request.data) {
        assert!(span.len().is_multiple_of(BLOCK), "payload comes in whole blocks");
        let start = span.as_ptr().cast_const();
        blocks.extend((0..span.len() / BLOCK).map(|index| start.wrapping_add(index * BLOCK)));
    }
    assert_eq!(blocks.len(), batch.payload as usize, "payload is as long as its items say");
    blocks
}

#[cfg(test)]
#[path = "stage_tests.rs"]
mod tests;
