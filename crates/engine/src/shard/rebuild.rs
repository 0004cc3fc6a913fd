//! Computes the missing columns of a segment, copies those on draining drives, and writes them to
//! other zones.
//!
//! Rows are read in large pieces from as many columns as are needed, data before parity; a column
//! that is only copied is read from its own drive. The segment's headers determine the contents of
//! every data cell, live or dead. Computed cells are compared with that, and on a mismatch the row
//! is computed from every choice of its cells. So undetected damage is not propagated into the new
//! column, and the damaged column is reported.
//!
//! Always true: only zones that belong to no segment are written; the segment itself is not
//! changed. Must not know: the choice of segments and zones, the rate.

use codec::ColumnSet;
use format::limits::BLOCK;
use format::{Address, Column, DriveIndex, Row, SegmentRecord, ZoneIndex};
use reactor::{Buffer, IoError, IoErrorKind, Reactor};
use smallvec::SmallVec;

use super::Shard;
use super::headers::{HeaderReader, ScannedRecord};
use super::lost::written_in_row;
use super::row_repairs::{expected, row_repairs};
use crate::error::{Error, ErrorKind, Result};
use crate::invariant::narrow;
use crate::repair::BackgroundPermit;
use crate::row_reader::RowSpan;
use crate::segments::Incomplete;

/// Bytes read at once, in all columns together.
const WINDOW_BYTES: usize = 4 << 20;
/// Maximum bytes read at once in one column: more is no faster.
const COLUMN_BYTES: usize = 1 << 20;
/// Bytes of a column that are computed or verified before the task yields.
const YIELD_BYTES: usize = 64 << 10;

/// A column to be written, and its new zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnTarget {
    pub(super) column: Column,
    pub(super) zone: (DriveIndex, ZoneIndex),
}

/// The columns of one segment that are to be written.
#[derive(Clone, Debug)]
pub(super) struct RebuildJob {
    pub(super) segment: Incomplete,
    pub(super) targets: SmallVec<[ColumnTarget; 2]>,
}

/// A rebuild job in progress.
pub(super) struct Rebuild<'a> {
    shard: &'a Shard,
    job: &'a RebuildJob,
    headers: HeaderReader<'a>,
    /// The record of the last row, and the row up to which records were read.
    current: Option<ScannedRecord>,
    known_to: Row,
    /// No further header can be read.
    ended: bool,
    /// Number of rows with a cell that could not be computed.
    pub(super) damaged_rows: u64,
    /// Columns that stay in place, in which damaged cells were found that could be computed.
    pub(super) damaged_columns: ColumnSet,
}

/// A window of rows: the cells that were read, and those to be written.
struct RowWindow {
    read: RowSpan,
    /// The columns to be written, and other missing data columns: with these, everything can be
    /// verified.
    computed: Vec<(u8, Buffer)>,
    /// Columns on drives in use that could not be read in one piece.
    unread: SmallVec<[u8; 4]>,
}

impl RowWindow {
    fn cells(&self, column: u8) -> Option<&Buffer> {
        self.read.cells.iter().find(|(of, _)| *of == column).map(|(_, cells)| cells)
    }
}

impl RebuildJob {
    /// Returns the number of bytes to be written.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.segment.rows) * self.targets.len() as u64 * BLOCK as u64
    }

    /// Returns the number of rows to read under this permit.
    pub(super) fn piece_rows(&self, permit: &BackgroundPermit<'_>) -> u32 {
        let column = (WINDOW_BYTES / usize::from(self.segment.scheme.data())).min(COLUMN_BYTES);
        narrow::<u32, _>(permit.chunk_bytes(column) / BLOCK, "C5").max(1)
    }
}

impl<'a> Rebuild<'a> {
    /// Starts with a segment, which is pinned until this is dropped; its `record` was taken after
    /// the pin.
    pub(super) fn new(shard: &'a Shard, job: &'a RebuildJob, record: &'a SegmentRecord) -> Self {
        let headers = HeaderReader::new(&shard.rows, &shard.identity, job.segment.id, record);
        let (known_to, damaged_columns) = (Row::new(0), ColumnSet::EMPTY);
        Self { shard, job, headers, current: None, known_to, ended: false, damaged_rows: 0, damaged_columns }
    }

    /// Computes and writes `count` rows from `row` on. Calls are made in the order of the rows.
    ///
    /// # Errors
    /// If a target drive fails.
    pub(super) async fn write_rows(&mut self, row: Row, count: u32) -> Result<()> {
        let mut piece = self.read_partial(row, count).await;
        let whole = self.decode(&mut piece).await;
        if let Some(at) = piece.computed.iter().position(|(column, _)| *column == 0).filter(|_| whole) {
            let cells = piece.computed.get(at).map(|(_, cells)| Buffer::copy_of(cells.as_slice()));
            cells.into_iter().for_each(|cells| self.headers.provide(row, cells));
        } else if let Some(cells) = piece.cells(0) {
            self.headers.provide(row, Buffer::copy_of(cells.as_slice()));
        }
        let damaged_before = self.damaged_rows;
        for row in (0..count).map(|index| row.plus(index)) {
            self.find_record(row).await?;
            let fits = match &self.current {
                Some(found) => whole && self.fits(&piece, found, row),
                // No header describes the contents of the row.
                None => whole,
            };
            if !fits && !self.repair_row(&mut piece, row).await {
                self.damaged_rows += 1;
                self.note_lost_in(row).await;
            }
            if (row.get() as usize * BLOCK).is_multiple_of(YIELD_BYTES) {
                Reactor::current().yield_now().await;
            }
        }
        if self.damaged_rows == damaged_before {
            self.mark_unreadable_columns(&piece).await;
        }
        self.write(&piece).await
    }

    /// Records the live blocks of a row that cannot be computed, as far as their own cells cannot
    /// be read.
    async fn note_lost_in(&self, row: Row) {
        let Some(found) = &self.current else { return };
        let scheme = self.job.segment.scheme;
        let present: Vec<u8> = (0..scheme.data()).filter(|column| !self.is_missing(*column)).collect();
        let mut one = RowSpan { id: self.job.segment.id, row, count: 1, cells: Vec::new() };
        self.shard.rows.read_columns(&mut one, &present).await;
        let is_right = |column: u8| {
            let cell = one.cells.iter().find(|(of, _)| *of == column);
            cell.is_some_and(|(_, cell)| expected(found, column, row)(cell.as_slice()))
        };
        self.shard.lost.note_cells(self.shard, written_in_row(found, row, is_right)).await;
    }

    /// Marks columns as damaged that could be read neither in one piece nor row by row, while the
    /// rest of their rows could.
    async fn mark_unreadable_columns(&mut self, piece: &RowWindow) {
        let RowSpan { id, row, count, .. } = piece.read;
        for column in piece.unread.iter().copied() {
            for row in (0..count).map(|index| row.plus(index)) {
                if self.damaged_columns.contains(column) || !self.is_in_use(column, row) {
                    break;
                }
                let mut one = RowSpan { id, row, count: 1, cells: Vec::new() };
                self.shard.rows.read_columns(&mut one, &[column]).await;
                if one.cells.is_empty() && self.is_in_use(column, row) {
                    self.damaged_columns.insert(column);
                }
            }
        }
    }

    /// Returns true if a column stays in place and has a cell in `row`, on a drive in use.
    fn is_in_use(&self, column: u8, row: Row) -> bool {
        let cell = self.shard.rows.segments.borrow().cell_at(self.job.segment.id, Column::new(column), row);
        !self.is_target(column) && cell.is_some_and(|cell| self.shard.rows.drives.is_online(cell.drive))
    }

    fn is_target(&self, column: u8) -> bool {
        self.job.targets.iter().any(|target| target.column.get() == column)
    }

    /// Reads as many columns as are needed, and others if some cannot be read.
    async fn read_partial(&self, row: Row, count: u32) -> RowWindow {
        let scheme = self.job.segment.scheme;
        let mut read = RowSpan { id: self.job.segment.id, row, count, cells: Vec::new() };
        let mut tried = SmallVec::<[u8; 32]>::new();
        let wanted = (0..scheme.width())
            .filter(|column| self.is_target(*column) || self.is_missing(*column) && *column < scheme.data());
        let wanted: Vec<u8> = wanted.collect();
        // Present data columns are copied: their headers verify them. Parity can be verified only
        // with the data.
        let is_copied = |column: &u8| *column < scheme.data() && !self.is_missing(*column);
        if wanted.iter().all(is_copied) {
            self.shard.rows.read_columns(&mut read, &wanted).await;
            tried.extend(wanted.iter().copied());
        }
        if read.cells.len() < wanted.len() || wanted.is_empty() {
            let unmissed = (0..scheme.width()).filter(|column| !self.is_missing(*column));
            let present: Vec<u8> =
                unmissed.filter(|column| !read.cells.iter().any(|(of, _)| of == column)).collect();
            let mut left = present.as_slice();
            while read.cells.len() < usize::from(scheme.data()) && !left.is_empty() {
                let needed = (usize::from(scheme.data()) - read.cells.len()).min(left.len());
                let (next, rest) = left.split_at(needed);
                self.shard.rows.read_columns(&mut read, next).await;
                tried.extend(next.iter().copied());
                left = rest;
            }
        }
        let computed = wanted.into_iter().map(|column| (column, Buffer::new(count as usize * BLOCK)));
        let is_read = |column: &u8| read.cells.iter().any(|(of, _)| of == column);
        let unread = tried.into_iter().filter(|column| !is_read(column) && self.is_in_use(*column, row));
        let unread = unread.collect();
        RowWindow { read, computed: computed.collect(), unread }
    }

    fn is_missing(&self, column: u8) -> bool {
        self.job.segment.missing.iter().any(|missing| missing.get() == column)
    }

    /// Copies the columns that were read and computes the rest, in steps that yield to other tasks.
    /// Returns false if too few columns could be read in one piece.
    async fn decode(&self, piece: &mut RowWindow) -> bool {
        let RowWindow { read, computed, .. } = piece;
        let present: ColumnSet = read.cells.iter().map(|(column, _)| *column).collect();
        let (copied, wanted): (SmallVec<[u8; 32]>, SmallVec<[u8; 32]>) =
            computed.iter().map(|(column, _)| *column).partition(|column| present.contains(*column));
        let cells_of =
            |column: u8| read.cells.iter().find(|(of, _)| *of == column).map(|(_, cells)| cells.as_slice());
        for (column, cells) in computed.iter_mut().filter(|(column, _)| copied.contains(column)) {
            cells_of(*column).into_iter().for_each(|from| cells.as_mut_slice().copy_from_slice(from));
        }
        if wanted.is_empty() {
            return true;
        }
        let code = self.shard.rows.code(self.job.segment.scheme);
        let Ok(decoder) = code.decoder(present, &wanted) else {
            // Cells that cannot be computed row by row either must be zeros, not old memory
            // contents.
            let computed = computed.iter_mut().filter(|(column, _)| wanted.contains(column));
            computed.for_each(|(_, cells)| cells.as_mut_slice().fill(0));
            return false;
        };
        let length = read.count as usize * BLOCK;
        for from in (0..length).step_by(YIELD_BYTES) {
            let range = from..(from + YIELD_BYTES).min(length);
            let source = |column: &u8| cells_of(*column)?.get(range.clone());
            let inputs: SmallVec<[&[u8]; 32]> = decoder.sources().iter().filter_map(source).collect();
            let outputs = computed.iter_mut().filter(|(column, _)| wanted.contains(column));
            let mut outputs: SmallVec<[&mut [u8]; 32]> =
                outputs.filter_map(|(_, cells)| cells.as_mut_slice().get_mut(range.clone())).collect();
            decoder.apply(&inputs, &mut outputs);
            Reactor::current().yield_now().await;
        }
        true
    }

    /// Advances to the record that contains `row`, if there is one.
    async fn find_record(&mut self, row: Row) -> Result<()> {
        while !self.ended && self.known_to <= row {
            self.current = self.headers.next().await?;
            match &self.current {
                Some(found) => self.known_to = found.layout.end(),
                None => self.ended = true,
            }
        }
        Ok(())
    }

    /// Returns true if the computed cells of a row have the right contents: data cells by their
    /// CRC, parity by all of the data.
    fn fits(&self, piece: &RowWindow, found: &ScannedRecord, row: Row) -> bool {
        let data = self.job.segment.scheme.data();
        let index = (row.get() - piece.read.row.get()) as usize;
        let fits = |(column, cells): &(u8, Buffer)| {
            let cell = cells.as_slice().get(index * BLOCK..(index + 1) * BLOCK);
            cell.is_some_and(expected(found, *column, row))
        };
        let parity = piece.computed.iter().any(|(column, _)| *column >= data);
        let computed = piece.computed.iter().filter(|(column, _)| *column < data).all(fits);
        computed && (!parity || piece.read.cells.iter().filter(|(column, _)| *column < data).all(fits))
    }

    /// Computes a row from all of its cells, with any choice of them that verifies. Returns false
    /// if there is none.
    async fn repair_row(&mut self, piece: &mut RowWindow, row: Row) -> bool {
        let scheme = self.job.segment.scheme;
        let rows = &self.shard.rows;
        let present: Vec<u8> = (0..scheme.width()).filter(|column| !self.is_missing(*column)).collect();
        let mut one = RowSpan { id: self.job.segment.id, row, count: 1, cells: Vec::new() };
        rows.read_columns(&mut one, &present).await;
        let index = (row.get() - piece.read.row.get()) as usize;
        let place = |cells: &mut Buffer, from: &[u8]| {
            let cell = cells.as_mut_slice().get_mut(index * BLOCK..(index + 1) * BLOCK);
            cell.into_iter().for_each(|cell| cell.copy_from_slice(from));
        };
        let Some(found) = &self.current else {
            let present: ColumnSet = one.cells.iter().map(|(column, _)| *column).collect();
            let mut cell = vec![0; BLOCK];
            return piece.computed.iter_mut().all(|(column, cells)| {
                if let Some((_, there)) = one.cells.iter().find(|(of, _)| of == column) {
                    place(cells, there.as_slice());
                    return true;
                }
                let wanted = Column::new(*column);
                let decoded = rows.decode_cell(scheme, present, wanted, &one.cells, 0, &mut cell);
                place(cells, &cell);
                decoded
            });
        };
        let Some(repairs) = row_repairs(rows, found, &one, row) else { return false };
        let (mut repaired, mut damaged_columns) = (SmallVec::<[u8; 4]>::new(), SmallVec::<[u8; 4]>::new());
        for (column, cell) in repairs {
            match piece.computed.iter_mut().find(|(of, _)| *of == column.get()) {
                Some((_, cells)) => place(cells, cell.as_slice()),
                None => self.report_wrong_cell(column, row, &one),
            }
            repaired.push(column.get());
            damaged_columns.extend(Some(column.get()).filter(|column| self.is_in_use(*column, row)));
        }
        // Cells to be copied that were read incorrectly the first time.
        for (column, cells) in piece.computed.iter_mut().filter(|(column, _)| !repaired.contains(column)) {
            let right = one.cells.iter().find(|(of, _)| of == column);
            right.into_iter().for_each(|(_, right)| place(cells, right.as_slice()));
        }
        for column in damaged_columns {
            self.damaged_columns.insert(column);
        }
        true
    }

    /// Reports a cell that was read with wrong contents.
    fn report_wrong_cell(&self, column: Column, row: Row, read: &RowSpan) {
        let cell = self.shard.rows.segments.borrow().cell_at(read.id, column, row);
        if let Some(cell) = cell
            && read.cells.iter().any(|(of, _)| *of == column.get())
        {
            self.shard.rows.note_corrupt(Address::new(read.id, column, row), cell.drive);
        }
    }

    async fn write(&self, piece: &RowWindow) -> Result<()> {
        let (drives, geometry) = (&self.shard.rows.drives, &self.shard.geometry);
        let start = u64::from(piece.read.row.get()) * format::limits::BLOCK_BYTES;
        let mut writes = SmallVec::<[_; 2]>::new();
        for target in &self.job.targets {
            let cells = piece.computed.iter().find(|(column, _)| *column == target.column.get());
            let Some((_, cells)) = cells else { panic!("every target column is computed") };
            let (drive, zone) = target.zone;
            let write = drives.write(drive, geometry.zone_offset(zone) + start, &[cells.span()]);
            writes.push((drive, write));
        }
        // All writes complete before anything else happens: the zones may be released.
        let mut failed = None;
        for (drive, write) in writes {
            match write {
                Some(write) => match write.await {
                    Ok(_) => drives.mark_dirty(drive),
                    Err(error) => failed = Some((drive, error)),
                },
                None => failed = Some((drive, IoError::new(IoErrorKind::Gone))),
            }
        }
        let Some((drive, error)) = failed else { return Ok(()) };
        self.shard.link.drive_failed(drive, "a write of a rebuilt column failed", error).await?;
        Err(target_failed(drive))
    }
}

/// Returns the error for a failed target drive.
pub(super) fn target_failed(drive: DriveIndex) -> Error {
    Error::new(ErrorKind::Io, format!("drive {drive} failed while a rebuilt column was written to it"))
}
