//! A record in memory, ready to be written: header, payload and parity, column by column.
//!
//! The payload is copied exactly once, because its owner (a guest) may change it at any time: the CRC and the parity
//! are those of the copy. Unused cells are zero, so that every row is a codeword (R2). All of a record may be laid out at once, or some
//! rows at a time, those of the header last, because it has the sums of all others.
#![allow(unsafe_code)]

use std::ops::Range;

use codec::{Code, Source};
use format::limits::BLOCK;
use format::{Header, Item, PoolKey, RecordPlace, Scheme};
use reactor::{Buffer, Span};
use smallvec::SmallVec;

use super::request::Batch;
use crate::geometry::RecordLayout;

/// Rows that are laid out at a time where the processor moves the data: all columns of them are in its second-level cache when they
/// are written, and the pieces are long enough to go past it.
pub(super) const STRIP_ROWS: usize = 16;

/// A record that is laid out.
pub(super) struct Stage<'a> {
    batch: &'a Batch,
    code: &'a Code,
    shape: Shape,
    /// What each data cell holds, in the order of the blocks, which is column by column.
    cells: SmallVec<[Source; 512]>,
    /// CRC32C of each, as far as they have been laid out.
    sums: SmallVec<[u32; 512]>,
}

/// Some rows of a record.
pub(super) struct Strip {
    buffer: Buffer,
    column_bytes: usize,
    /// A mirror's columns all hold the same bytes, which are kept once.
    mirrored: bool,
}

impl<'a> Stage<'a> {
    /// A batch as a record of `scheme`, nothing of it laid out.
    pub(super) fn new(batch: &'a Batch, scheme: Scheme, code: &'a Code, layout: RecordLayout) -> Self {
        let data = usize::from(scheme.data());
        let shape = Shape {
            rows: layout.rows as usize,
            data,
            columns: if data == 1 { 1 } else { usize::from(scheme.width()) },
            header_blocks: batch.header_blocks as usize,
        };
        let cells = shape.cells(batch);
        let sums = SmallVec::from_elem(0, cells.len());
        Self { batch, code, shape, cells, sums }
    }

    /// Parts of the record in the order in which they are to be laid out: all of it, or strips of about [`STRIP_ROWS`].
    pub(super) fn strips(&self, at_once: bool) -> SmallVec<[Range<usize>; 8]> {
        let (rows, first) = (self.shape.rows, self.shape.header_rows());
        let count = (rows - first) / STRIP_ROWS;
        if at_once || count < 2 {
            return SmallVec::from_elem(0..rows, 1);
        }
        let start = |strip: usize| if strip < count { first + strip * STRIP_ROWS } else { rows };
        (0..count).map(|strip| start(strip)..start(strip + 1)).chain(std::iter::once(0..first)).collect()
    }

    /// Lays out some rows. Those that hold the header come last, if not all at once.
    pub(super) fn lay_out(&mut self, rows: Range<usize>, place: &RecordPlace, key: &PoolKey) -> Strip {
        let column_bytes = rows.len() * BLOCK;
        let mut buffer = Buffer::new(self.shape.columns * column_bytes);
        let held = if rows.start == 0 { self.shape.header_rows() } else { 0 };
        let mirrored = self.shape.data == 1;
        if mirrored {
            self.copy(rows, buffer.as_mut_slice());
        } else {
            self.copy_and_encode(rows, held, buffer.as_mut_slice());
        }
        if held > 0 {
            self.write_header(place, key, buffer.as_mut_slice());
            if !mirrored {
                self.encode_rows(held, column_bytes, buffer.as_mut_slice());
            }
        }
        Strip { buffer, column_bytes, mirrored }
    }

    /// CRC32C of each payload block, when everything has been laid out.
    pub(super) fn crcs(&self) -> &[u32] {
        let header = self.shape.header_blocks;
        match self.sums.get(header..header + self.batch.payload as usize) {
            Some(crcs) => crcs,
            None => panic!("a record holds its whole payload"),
        }
    }

    /// Writes the header into its cells, which are zero: the first ones of the first column, one below the other.
    fn write_header(&self, place: &RecordPlace, key: &PoolKey, bytes: &mut [u8]) {
        let items: SmallVec<[Item; 64]> =
            self.batch.requests.iter().flat_map(|request| request.items.iter().copied()).collect();
        let cells = bytes.get_mut(..self.shape.header_blocks * BLOCK);
        let Some(cells) = cells else { panic!("a record has room for its header") };
        Header::encode(place, &items, self.crcs(), key, cells);
    }

    /// Fills rows of the one column of a mirror: nothing is encoded.
    fn copy(&mut self, rows: Range<usize>, bytes: &mut [u8]) {
        let (cells, sums) = (self.cells.get(rows.clone()), self.sums.get_mut(rows));
        let (Some(cells), Some(sums)) = (cells, sums) else { panic!("rows of a record") };
        for ((cell, source), sum) in bytes.chunks_exact_mut(BLOCK).zip(cells).zip(sums) {
            match source {
                // SAFETY: each source is a whole block of a span that the batch keeps alive.
                Source::Copy(at) => *sum = unsafe { codec::copy_crc32c_from(*at, cell) },
                Source::Zero | Source::InPlace => cell.fill(0),
            }
        }
    }

    /// Fills all cells of some rows, zero where they are the header's or nobody's, and encodes all but the first `held` of them, which
    /// hold the header.
    fn copy_and_encode(&mut self, rows: Range<usize>, held: usize, bytes: &mut [u8]) {
        let all = rows.len() == self.shape.rows;
        let (mut data, mut parity) = columns(bytes, rows.len() * BLOCK, self.shape.data);
        if all {
            // SAFETY: each source is a whole block of a span that the batch keeps alive, outside of our buffer.
            unsafe {
                let (cells, sums) = (&self.cells, &mut self.sums);
                self.code.encode_record_copy(BLOCK, held, cells, &mut data, sums, &mut parity);
            }
            return;
        }
        let of_column = |column: usize| {
            let first = column * self.shape.rows;
            first + rows.start..first + rows.end
        };
        let cells: SmallVec<[Source; 128]> = (0..self.shape.data)
            .flat_map(|column| self.cells.get(of_column(column)).unwrap_or(&[]))
            .copied()
            .collect();
        let mut sums: SmallVec<[u32; 128]> = SmallVec::from_elem(0, cells.len());
        // SAFETY: as above.
        unsafe { self.code.encode_record_copy(BLOCK, held, &cells, &mut data, &mut sums, &mut parity) };
        for (column, sums) in sums.chunks_exact(rows.len()).enumerate() {
            if let Some(place) = self.sums.get_mut(of_column(column)) {
                place.copy_from_slice(sums);
            }
        }
    }

    /// Encodes the first rows, which had to wait for the header.
    fn encode_rows(&self, count: usize, column_bytes: usize, bytes: &mut [u8]) {
        let rows = ..count * BLOCK;
        let (data, mut parity) = columns(bytes, column_bytes, self.shape.data);
        let inputs: SmallVec<[&[u8]; 32]> = data.iter().filter_map(|column| column.get(rows)).collect();
        let mut outputs: Columns<'_> = parity.iter_mut().filter_map(|column| column.get_mut(rows)).collect();
        self.code.encode(&inputs, &mut outputs);
    }
}

impl Strip {
    /// What to write to a column.
    pub(super) fn column(&self, column: u8) -> Span {
        let start = if self.mirrored { 0 } else { usize::from(column) * self.column_bytes };
        self.buffer.span().slice(start..start + self.column_bytes)
    }
}

/// The shape of a record.
struct Shape {
    rows: usize,
    data: usize,
    /// Columns that are laid out.
    columns: usize,
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

/// The data and parity columns of some rows.
fn columns(bytes: &mut [u8], column_bytes: usize, data: usize) -> (Columns<'_>, Columns<'_>) {
    let mut columns: Columns<'_> = bytes.chunks_exact_mut(column_bytes).collect();
    let parity = columns.drain(data..).collect();
    (columns, parity)
}

#[cfg(test)]
#[path = "stage_tests.rs"]
mod tests;
