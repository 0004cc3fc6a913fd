//! The scrub of one segment: reads its rows and compares every cell with the headers.
//!
//! Always true: nothing is written here. Must not know: the choice of segments, pauses and limits.

use codec::ColumnSet;
use format::limits::{BLOCK, BLOCK_BYTES};
use format::{Address, Column, DriveIndex, Row, SegmentId, SegmentRecord};
use reactor::{Buffer, Reactor};
use smallvec::SmallVec;

use crate::row_reader::PartialRows;
use crate::scrub::{Damage, ScrubFindings};
use crate::shard::Shard;
use crate::shard::headers::{HeaderReader, ScannedRecord};
use crate::shard::lost::{LostCell, written_in_row};
use crate::shard::row_repairs::{expected, row_repairs};

/// Number of rows that are compared before the task yields.
const YIELD_ROWS: u32 = 16;

/// A segment that is being scrubbed.
pub(super) struct SegmentScrub<'a> {
    shard: &'a Shard,
    id: SegmentId,
    headers: HeaderReader<'a>,
    current: Option<ScannedRecord>,
    /// The row up to which headers were read.
    pub(super) known_to: Row,
    /// No further header can be read.
    pub(super) ended: bool,
    pub(super) found: ScrubFindings,
    /// Cells that cannot be computed, of blocks that may be live.
    lost: Vec<LostCell>,
}

impl<'a> SegmentScrub<'a> {
    /// Starts with a segment, which is pinned until this is dropped; its `record` was taken after
    /// the pin.
    pub(super) fn new(shard: &'a Shard, id: SegmentId, record: &'a SegmentRecord) -> Self {
        Self {
            shard,
            id,
            headers: HeaderReader::new(&shard.rows, &shard.identity, id, record),
            current: None,
            known_to: Row::new(0),
            ended: false,
            found: ScrubFindings::default(),
            lost: Vec::new(),
        }
    }

    /// Scrubs some rows; returns the number of bytes read.
    pub(super) async fn scrub_rows(&mut self, row: Row, count: u32) -> u64 {
        let piece = self.shard.rows.read_partial(self.id, row, count).await;
        if let Some((_, first)) = piece.span.cells.iter().find(|(column, _)| *column == 0) {
            self.headers.provide(row, Buffer::copy_of(first.as_slice()));
        }
        let bytes = piece.span.cells.len() as u64 * u64::from(count) * BLOCK_BYTES;
        self.found.bytes += bytes;
        for from in (0..count).step_by(YIELD_ROWS as usize) {
            let rows = from..(from + YIELD_ROWS).min(count);
            let fits = self.parity_fits(&piece, from, rows.end - from);
            for index in rows {
                if !self.find_record(row.plus(index)).await {
                    return bytes;
                }
                self.scrub_row(&piece, index, fits);
            }
            self.shard.lost.note_cells(self.shard, std::mem::take(&mut self.lost)).await;
            Reactor::current().yield_now().await;
        }
        bytes
    }

    /// Advances to the record that contains `row`. Returns false if its header cannot be read.
    async fn find_record(&mut self, row: Row) -> bool {
        while !self.ended && self.known_to <= row {
            match self.headers.next().await {
                Ok(Some(found)) => {
                    self.known_to = found.layout.end();
                    self.current = Some(found);
                }
                Ok(None) | Err(_) => {
                    self.ended = true;
                    self.found.lost += 1;
                }
            }
        }
        !self.ended
    }

    /// Returns true if all cells of some rows were read, and their parity fits their data.
    fn parity_fits(&self, piece: &PartialRows, from: u32, count: u32) -> bool {
        let scheme = self.shard.rows.segments.borrow().scheme(piece.span.id);
        let there: ColumnSet = piece.span.cells.iter().map(|(column, _)| *column).collect();
        if (0..scheme.width()).any(|column| !there.contains(column)) || !piece.unreadable.is_empty() {
            return false;
        }
        let range = from as usize * BLOCK..(from + count) as usize * BLOCK;
        let cells = |column: u8| {
            let cells = piece.span.cells.iter().find(|(of, _)| *of == column);
            cells.and_then(|(_, cells)| cells.as_slice().get(range.clone()))
        };
        let data: SmallVec<[&[u8]; 32]> = (0..scheme.data()).filter_map(cells).collect();
        let mut right: Vec<Buffer> = (0..scheme.parity()).map(|_| Buffer::new(range.len())).collect();
        let mut outputs: Vec<&mut [u8]> = right.iter_mut().map(Buffer::as_mut_slice).collect();
        self.shard.rows.code(scheme).encode(&data, &mut outputs);
        (scheme.data()..scheme.width())
            .zip(&right)
            .all(|(column, right)| cells(column) == Some(right.as_slice()))
    }

    /// Compares a row with its record; `fits` is true if its parity is known to fit its data.
    fn scrub_row(&mut self, piece: &PartialRows, index: u32, fits: bool) {
        let Some(found) = &self.current else { return };
        let row = piece.span.row.plus(index);
        let scheme = self.shard.rows.segments.borrow().scheme(self.id);
        let right =
            |column: u8| piece.cell(column, index).is_some_and(|bytes| expected(found, column, row)(bytes));
        if fits && (0..scheme.data()).all(right) {
            return;
        }
        let drive_of = |column: u8| {
            let cell = self.shard.rows.segments.borrow().cell_at(self.id, Column::new(column), row)?;
            self.shard.rows.drives.is_online(cell.drive).then_some(cell.drive)
        };
        let one = piece.row(index, |column| drive_of(column).is_some());
        let Some(repairs) = row_repairs(&self.shard.rows, found, &one, row) else {
            self.found.lost += 1;
            let in_place = |column| drive_of(column).is_some() && right(column);
            self.lost.extend(written_in_row(found, row, in_place));
            tracing::error!(segment = %self.id, %row, "row cannot be reconstructed: too many of its cells are damaged");
            return;
        };
        // Cells on drives that are not in use are handled by repair.
        let damaged = repairs.iter().filter_map(|(column, _)| Some((column.get(), drive_of(column.get())?)));
        for (column, drive) in damaged {
            let unreadable = piece.unreadable.contains(&(column, index));
            if !unreadable {
                self.shard.rows.note_corrupt(Address::new(self.id, Column::new(column), row), drive);
            }
            self.found.note(drive, self.id, column, row, unreadable);
        }
    }
}

impl ScrubFindings {
    fn note(&mut self, drive: DriveIndex, segment: SegmentId, column: u8, row: Row, unreadable: bool) {
        let known = self.damage.iter().position(|damage| damage.column == column);
        if known.is_none() {
            self.damage.push(Damage { drive, segment, column, row: row.get(), unreadable: 0, wrong: 0 });
        }
        let damage = match known {
            Some(at) => self.damage.get_mut(at),
            None => self.damage.last_mut(),
        };
        if let Some(damage) = damage {
            *(if unreadable { &mut damage.unreadable } else { &mut damage.wrong }) += 1;
        }
    }
}
