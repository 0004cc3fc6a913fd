//! Reads of cells and rows: verified reads, and reconstruction from the other columns.
//!
//! A read of live data is checked against the CRC in its map entry. A block that a drive fails to
//! return or returns corrupt is computed from the other columns of its row and checked against the
//! same CRC. Always true (R1): bytes that do not match the CRC are never returned as the block.
//!
//! Must not know: layers and volumes, the origin of a request, the log.

mod partial;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use codec::{Code, ColumnSet, crc32c, crc32c_blocks};
use format::limits::BLOCK;
use format::{Address, Column, DriveIndex, Row, Scheme, SegmentId};
use reactor::{Buffer, IoError, IoErrorKind, Span};
use smallvec::SmallVec;

use crate::bad_reads::BadRead;
use crate::drives::{DriveEpoch, Drives};
use crate::error::{Error, ErrorLocation, Result};
use crate::in_flight::InFlight;
use crate::invariant::narrow;
use crate::segments::Segments;
pub(crate) use partial::PartialRows;

/// A shard's drives and segments: everything needed to read any row.
pub(crate) struct RowReader {
    pub(crate) drives: Drives,
    pub(crate) segments: RefCell<Segments>,
    codes: RefCell<Vec<(Scheme, Rc<Code>)>>,
    /// Number of blocks reconstructed although their drive is online.
    pub(crate) repaired: Cell<u64>,
    /// Drives that reported their removal; the shard reports them to the control.
    pub(crate) gone_drives: RefCell<Vec<(DriveEpoch, IoError)>>,
}

/// Consecutive rows of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// The first block.
    pub(crate) address: Address,
    /// Number of blocks.
    pub(crate) count: u32,
}

/// Rows of a segment, with the columns that are in memory.
pub(crate) struct RowSpan {
    pub(crate) id: SegmentId,
    pub(crate) row: Row,
    pub(crate) count: u32,
    /// Column number, and the column's cells in row order.
    pub(crate) cells: Vec<(u8, Buffer)>,
}

/// Verified cells of one column that the caller has in memory.
pub(crate) struct CachedCells {
    pub(crate) column: u8,
    /// First row, relative to the first requested row.
    pub(crate) from: u32,
    /// The cells, in row order.
    pub(crate) cells: Span,
}

impl CachedCells {
    fn rows(&self) -> Range<u32> {
        self.from..self.from + narrow::<u32, _>(self.cells.len() / BLOCK, "R1")
    }
}

/// Keeps a segment's zones from being reused (S3) until dropped.
pub(crate) struct SegmentPin<'a> {
    rows: &'a RowReader,
    id: SegmentId,
}

impl Drop for SegmentPin<'_> {
    fn drop(&mut self) {
        self.rows.segments.borrow_mut().unpin(self.id);
    }
}

/// Result of a verified read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// Read from its drive.
    Direct,
    /// The drive is offline: reconstructed from the other columns.
    Degraded,
    /// The drive is online but returned an error or corrupt data: reconstructed, and must be
    /// relocated.
    Repaired,
}

/// Maximum number of column combinations tried by a reconstruction if cells may be silently
/// corrupt.
const COMBINATIONS_MAX: u32 = 4096;
/// Blocks whose CRCs are computed together.
const VERIFIED_AT_ONCE: usize = 64;

impl RowReader {
    pub(crate) fn new(drives: Drives, segments: Segments) -> Self {
        Self {
            drives,
            segments: RefCell::new(segments),
            codes: RefCell::default(),
            repaired: Cell::new(0),
            gone_drives: RefCell::default(),
        }
    }

    /// Pins an existing segment.
    pub(crate) fn pin(&self, id: SegmentId) -> SegmentPin<'_> {
        self.segments.borrow_mut().pin(id);
        SegmentPin { rows: self, id }
    }

    /// Returns the erasure code of a scheme.
    pub(crate) fn code(&self, scheme: Scheme) -> Rc<Code> {
        let mut codes = self.codes.borrow_mut();
        if let Some((_, code)) = codes.iter().find(|(of, _)| *of == scheme) {
            return code.clone();
        }
        let code = match Code::new(scheme.data(), scheme.parity()) {
            Ok(code) => Rc::new(code),
            Err(error) => panic!("a scheme within the format's limits has a code: {error}"),
        };
        codes.push((scheme, code.clone()));
        code
    }

    /// Reads a run into `into` and verifies each block against its CRC. The caller must pin the
    /// segment.
    ///
    /// # Errors
    /// `Corrupt` if a block cannot be read or reconstructed.
    pub(crate) async fn read_run(&self, run: BlockRun, crcs: &[u32], into: &Span) -> Result<ReadOutcome> {
        assert!(
            into.len() == run.count as usize * BLOCK && crcs.len() == run.count as usize,
            "R1: every block of a run has room and a CRC"
        );
        match self.start_read(run.address, std::slice::from_ref(into)) {
            Some((drive, io)) => self.finish_read(run, crcs, into, drive, io).await,
            // On the heap, as in `finish_read`.
            None => Box::pin(self.rebuild_run(run, crcs, into, &[])).await.map(|()| ReadOutcome::Degraded),
        }
    }

    /// Starts reading consecutive cells from `address`; `None` if their drive is offline.
    pub(crate) fn start_read(&self, address: Address, into: &[Span]) -> Option<(DriveEpoch, InFlight)> {
        let cell = self.segments.borrow().cell(address)?;
        self.drives.read(cell.drive, cell.offset, into)
    }

    /// Completes a read started by [`RowReader::start_read`]: verifies it, and reconstructs bad
    /// blocks.
    ///
    /// # Errors
    /// As [`RowReader::read_run`].
    pub(crate) async fn finish_read(
        &self,
        run: BlockRun,
        crcs: &[u32],
        into: &Span,
        drive: DriveEpoch,
        io: InFlight,
    ) -> Result<ReadOutcome> {
        match io.await {
            Ok(_) if into.peek(|bytes| verify(bytes, crcs)) => return Ok(ReadOutcome::Direct),
            Ok(_) => {}
            Err(error) => self.note_error(run.address, drive, error),
        }
        // A rare and large future: on the heap, so that it does not increase the size of every
        // read.
        Box::pin(self.recover_run(run, crcs, into)).await
    }

    /// Records a failed read at `address`, or the removal of the drive.
    fn note_error(&self, address: Address, drive: DriveEpoch, error: IoError) {
        if !self.drives.is_current(drive) {
            tracing::debug!(drive = %drive.index, %error, "ignoring a failed read from before the drive was lost");
        } else if error.kind() == IoErrorKind::Gone {
            self.gone_drives.borrow_mut().push((drive, error));
        } else {
            tracing::debug!(drive = %drive.index, %address, %error, "read failed");
            self.note_bad_read(address, drive.index, Some(error));
        }
    }

    /// Records that a drive returned corrupt data for `address`.
    pub(crate) fn note_corrupt(&self, address: Address, drive: DriveIndex) {
        tracing::debug!(%drive, %address, "read returned corrupt data");
        self.note_bad_read(address, drive, None);
    }

    fn note_bad_read(&self, address: Address, drive: DriveIndex, error: Option<IoError>) {
        // The column may have moved since the read.
        let cell = self.segments.borrow().cell(address).filter(|cell| cell.drive == drive);
        self.drives.bad_reads.record(BadRead { drive, offset: cell.map(|cell| cell.offset), error });
    }

    /// Reads the blocks of a failed run again one by one, and reconstructs the blocks that are
    /// still bad.
    async fn recover_run(&self, run: BlockRun, crcs: &[u32], into: &Span) -> Result<ReadOutcome> {
        assert_eq!(into.len(), crcs.len() * BLOCK, "R1: every block of a read has a CRC");
        let mut outcome = ReadOutcome::Direct;
        for (index, crc) in (0..run.count).zip(crcs) {
            let address = run.address.plus_rows(index);
            let target = into.slice(index as usize * BLOCK..(index as usize + 1) * BLOCK);
            // Verify a private copy: the client may modify its own buffer during the read.
            let private = Buffer::new(BLOCK);
            let started = self.start_read(address, &[private.span()]);
            if let Some((drive, io)) = started {
                match io.await {
                    Ok(_) if crc32c(private.as_slice()) == *crc => {
                        target.copy_from(0, private.as_slice());
                        continue;
                    }
                    Ok(_) => self.note_corrupt(address, drive.index),
                    Err(error) => self.note_error(address, drive, error),
                }
            }
            let one = BlockRun { address, count: 1 };
            self.rebuild_run(one, std::slice::from_ref(crc), &target, &[]).await?;
            self.repaired.set(self.repaired.get() + 1);
            outcome = ReadOutcome::Repaired;
        }
        Ok(outcome)
    }

    /// Computes a run from the other columns of its rows. `cached` are verified cells of these rows
    /// that are already in memory and need not be read.
    ///
    /// # Errors
    /// `Corrupt` if a block cannot be reconstructed.
    pub(crate) async fn rebuild_run(
        &self,
        run: BlockRun,
        crcs: &[u32],
        into: &Span,
        cached: &[CachedCells],
    ) -> Result<()> {
        assert_eq!(crcs.len(), run.count as usize, "R1: every block of a rebuild has a CRC");
        assert_eq!(into.len(), crcs.len() * BLOCK, "R1: every rebuilt block has room");
        let (id, wanted) = (run.address.segment(), run.address.column());
        let scheme = self.segments.borrow().scheme(id);
        assert!(wanted.get() < scheme.width(), "R2: segment {id} has no column {wanted}");
        let mut columns = RowSpan { id, row: run.address.row(), count: run.count, cells: Vec::new() };
        // Columns with the fewest missing cells first.
        let mut others: SmallVec<[u8; 32]> =
            (0..scheme.width()).filter(|column| *column != wanted.get()).collect();
        others.sort_by_key(|column| gaps(run.count, cached, *column).iter().map(Range::len).sum::<usize>());
        // Read the minimum number of columns first; the others only if the result does not verify.
        let mut left = others.as_slice();
        while columns.cells.len() < usize::from(scheme.data()) && !left.is_empty() {
            let needed = usize::from(scheme.data()) - columns.cells.len();
            let (first, rest) = left.split_at(needed.min(left.len()));
            self.fill_columns(&mut columns, first, cached).await;
            left = rest;
        }
        let mut block = Buffer::new(BLOCK);
        for (index, crc) in (0..run.count as usize).zip(crcs) {
            let accept = |bytes: &[u8]| crc32c(bytes) == *crc;
            let mut accepted =
                self.rebuild_cell(scheme, wanted, &columns.cells, index, block.as_mut_slice(), accept);
            if !accepted && !left.is_empty() {
                self.fill_columns(&mut columns, left, cached).await;
                left = &[];
                accepted =
                    self.rebuild_cell(scheme, wanted, &columns.cells, index, block.as_mut_slice(), accept);
            }
            if !accepted {
                return Err(self.unreadable(run.address.plus_rows(narrow(index, "R1"))));
            }
            into.copy_from(index * BLOCK, block.as_slice());
        }
        Ok(())
    }

    /// Reads the columns `wanted` of some rows; leaves out columns that cannot be read.
    pub(crate) async fn read_columns(&self, into: &mut RowSpan, wanted: &[u8]) {
        self.fill_columns(into, wanted, &[]).await;
    }

    /// Like [`RowReader::read_columns`], but reads only the cells that are not in `cached`.
    async fn fill_columns(&self, into: &mut RowSpan, wanted: &[u8], cached: &[CachedCells]) {
        let mut started = SmallVec::<[_; 8]>::new();
        for column in wanted.iter().copied() {
            let gaps = gaps(into.count, cached, column);
            // A column without the later rows is left out: this is rare, and the other columns
            // suffice.
            let last = Address::new(into.id, Column::new(column), into.row.plus(into.count - 1));
            if !gaps.is_empty() && self.segments.borrow().cell(last).is_none() {
                continue;
            }
            let buffer = Buffer::new(into.count as usize * BLOCK);
            for cached_rows in cached.iter().filter(|cached_rows| cached_rows.column == column) {
                buffer.span().slice(bytes_of(&cached_rows.rows())).copy_from_span(&cached_rows.cells);
            }
            let mut reads = SmallVec::<[_; 2]>::new();
            let whole = gaps.iter().all(|gap| {
                let first = Address::new(into.id, Column::new(column), into.row.plus(gap.start));
                let read = self.start_read(first, &[buffer.span().slice(bytes_of(gap))]);
                read.map(|read| reads.push(read)).is_some()
            });
            started.push((column, whole, reads, buffer));
        }
        for (column, mut whole, reads, buffer) in started {
            for (drive, io) in reads {
                if let Err(error) = io.await {
                    self.note_error(Address::new(into.id, Column::new(column), into.row), drive, error);
                    whole = false;
                }
            }
            if whole {
                into.cells.push((column, buffer));
            }
        }
    }

    /// Computes the cell of column `wanted` in row `index` of `cells`, with different combinations
    /// of the other columns until `accept` returns true. Returns false if no result is accepted.
    pub(crate) fn rebuild_cell(
        &self,
        scheme: Scheme,
        wanted: Column,
        cells: &[(u8, Buffer)],
        index: usize,
        into: &mut [u8],
        accept: impl Fn(&[u8]) -> bool,
    ) -> bool {
        assert_eq!(into.len(), BLOCK, "R2: a cell is a block");
        let mut tried = 0;
        let present: ColumnSet =
            cells.iter().map(|(column, _)| *column).filter(|column| *column != wanted.get()).collect();
        combinations(present, scheme.data(), |sources| {
            tried += 1;
            self.decode_cell(scheme, sources, wanted, cells, index, into) && accept(into)
                || tried >= COMBINATIONS_MAX
        }) && accept(into)
    }

    /// Computes the cell of column `wanted` in row `index` of `cells` from exactly these columns.
    pub(crate) fn decode_cell(
        &self,
        scheme: Scheme,
        sources: ColumnSet,
        wanted: Column,
        cells: &[(u8, Buffer)],
        index: usize,
        into: &mut [u8],
    ) -> bool {
        let Ok(decoder) = self.code(scheme).decoder(sources, &[wanted.get()]) else { return false };
        let inputs: SmallVec<[&[u8]; 32]> = decoder
            .sources()
            .iter()
            .filter_map(|source| cells.iter().find(|(column, _)| column == source))
            .filter_map(|(_, buffer)| buffer.as_slice().get(index * BLOCK..(index + 1) * BLOCK))
            .collect();
        decoder.apply(&inputs, &mut [&mut *into]);
        true
    }

    fn unreadable(&self, address: Address) -> Error {
        let drive = self.segments.borrow().cell(address).map(|cell| cell.drive);
        let place = ErrorLocation { drive, address: Some(address), block: None };
        Error::corrupt(
            "a block is unreadable, and cannot be reconstructed from the other columns",
            place,
            None,
        )
    }
}

/// Ranges of rows below `count` that are missing in `cached` for a column.
fn gaps(count: u32, cached: &[CachedCells], column: u8) -> SmallVec<[Range<u32>; 2]> {
    let mut cached_rows: SmallVec<[Range<u32>; 4]> =
        cached.iter().filter(|cached_rows| cached_rows.column == column).map(CachedCells::rows).collect();
    cached_rows.sort_by_key(|rows| rows.start);
    let mut gaps = SmallVec::new();
    let mut at = 0;
    for rows in cached_rows {
        assert!(rows.start <= rows.end && rows.end <= count, "R1: cached rows are within the span");
        if rows.start > at {
            gaps.push(at..rows.start);
        }
        at = at.max(rows.end);
    }
    if at < count {
        gaps.push(at..count);
    }
    gaps
}

fn bytes_of(rows: &Range<u32>) -> Range<usize> {
    rows.start as usize * BLOCK..rows.end as usize * BLOCK
}

/// Returns true if every block of `bytes` matches its CRC.
fn verify(bytes: &[u8], crcs: &[u32]) -> bool {
    assert_eq!(bytes.len(), crcs.len() * BLOCK, "R1: every block of a read is verified");
    // Together, because the next block is prefetched: the drive has just written them to memory.
    let mut found = [0; VERIFIED_AT_ONCE];
    bytes.chunks(VERIFIED_AT_ONCE * BLOCK).zip(crcs.chunks(VERIFIED_AT_ONCE)).all(|(bytes, crcs)| {
        found.get_mut(..crcs.len()).is_some_and(|found| {
            crc32c_blocks(bytes, BLOCK, found);
            found == crcs
        })
    })
}

/// Calls `try_one` with each subset of `size` columns until it returns true. Returns whether it
/// did.
pub(crate) fn combinations(present: ColumnSet, size: u8, mut try_one: impl FnMut(ColumnSet) -> bool) -> bool {
    fn choose(
        rest: &[u8],
        left: usize,
        chosen: ColumnSet,
        try_one: &mut impl FnMut(ColumnSet) -> bool,
    ) -> bool {
        if left == 0 {
            return try_one(chosen);
        }
        let Some((first, others)) = rest.split_first() else { return false };
        if rest.len() < left {
            return false;
        }
        let mut with = chosen;
        with.insert(*first);
        choose(others, left - 1, with, try_one) || choose(others, left, chosen, try_one)
    }
    let columns: SmallVec<[u8; 32]> = present.iter().collect();
    choose(&columns, usize::from(size), ColumnSet::EMPTY, &mut try_one)
}

#[cfg(test)]
#[path = "row_reader_tests.rs"]
mod tests;
