//! Cells and rows on the drives: reads that verify themselves, and what is done when they do not.
//!
//! A read of live data is checked against the CRC in its map entry. What a drive does not give, or gives wrongly, is
//! computed from the other columns of its row and checked against the same CRC. Always true (R1): bytes that do not
//! match the CRC are never given out as the block.
//!
//! Must not know: layers and volumes, who asked, the log.

mod in_memory;
mod partial;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use codec::{Code, ColumnSet, crc32c};
use format::limits::BLOCK;
use format::{Address, Column, DriveIndex, Row, Scheme, SegmentId};
use reactor::{Buffer, IoError, IoErrorKind, Span};
use smallvec::SmallVec;

use crate::bad_reads::BadRead;
use crate::drives::{DriveEpoch, Drives};
use crate::error::{Error, ErrorLocation, Result};
use crate::in_flight::InFlight;
use crate::segments::Segments;
pub(crate) use partial::PartialRows;

/// A shard's drives and segments together: what it takes to read any row.
pub(crate) struct RowReader {
    pub(crate) drives: Drives,
    pub(crate) segments: RefCell<Segments>,
    codes: RefCell<Vec<(Scheme, Rc<Code>)>>,
    /// Blocks that other columns had to give back although their own drive is in use.
    pub(crate) repaired: Cell<u64>,
    /// A drive that said it is gone; the shard reports it.
    pub(crate) gone_drives: RefCell<Vec<(DriveEpoch, IoError)>>,
}

/// Blocks that lie one below the other in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    /// The first block.
    pub(crate) address: Address,
    /// Number of blocks.
    pub(crate) count: u32,
}

/// Some rows of a segment, and the columns of them that are in memory.
pub(crate) struct RowSpan {
    pub(crate) id: SegmentId,
    pub(crate) row: Row,
    pub(crate) count: u32,
    /// Column number and its cells, one below the other.
    pub(crate) cells: Vec<(u8, Buffer)>,
}

/// Some rows of a column that the caller has in memory, verified.
pub(crate) struct CachedCells {
    pub(crate) column: u8,
    /// Number of the first of them, counted from the first row that is asked for.
    pub(crate) from: u32,
    /// Its cells, one below the other.
    pub(crate) cells: Span,
}

impl CachedCells {
    fn rows(&self) -> Range<u32> {
        self.from..self.from + u32::try_from(self.cells.len() / BLOCK).unwrap_or(0)
    }
}

/// Keeps a segment's zones from being given to other data (S3); taken back when it is dropped.
pub(crate) struct SegmentPin<'a> {
    rows: &'a RowReader,
    id: SegmentId,
}

impl Drop for SegmentPin<'_> {
    fn drop(&mut self) {
        self.rows.segments.borrow_mut().unpin(self.id);
    }
}

/// How a verified read came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// Read where it lies.
    Direct,
    /// Its drive is out of use: computed from the other columns.
    Degraded,
    /// Its drive is in use but gave no or wrong bytes: computed, and to be moved elsewhere.
    Repaired,
}

/// Combinations of columns that a reconstruction tries at most when cells may be wrong without saying so.
const COMBINATIONS_MAX: u32 = 4096;

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

    /// Pins a segment that exists.
    pub(crate) fn pin(&self, id: SegmentId) -> SegmentPin<'_> {
        self.segments.borrow_mut().pin(id);
        SegmentPin { rows: self, id }
    }

    /// The code of a scheme.
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

    /// Reads a run into `into` and verifies each block against its CRC. The segment must be pinned by the caller.
    ///
    /// # Errors
    /// `Corrupt` if a block cannot be had from its row.
    pub(crate) async fn read_run(&self, run: BlockRun, crcs: &[u32], into: &Span) -> Result<ReadOutcome> {
        assert!(
            into.len() == run.count as usize * BLOCK && crcs.len() == run.count as usize,
            "shape of a read"
        );
        if self.copy_run(run, crcs, into) {
            return Ok(ReadOutcome::Direct);
        }
        match self.start_read(run.address, std::slice::from_ref(into)) {
            Some((drive, io)) => self.finish_read(run, crcs, into, drive, io).await,
            // On the heap as in `finish_read`.
            None => Box::pin(self.rebuild_run(run, crcs, into, &[])).await.map(|()| ReadOutcome::Degraded),
        }
    }

    /// A block is about to be read.
    pub(crate) fn prefetch_hint(&self, address: Address) {
        if let Some(cell) = self.segments.borrow().cell(address) {
            self.drives.prefetch_hint(cell.drive, cell.offset, BLOCK);
        }
    }

    /// Starts reading cells from `address` down; `None` if they are not on a drive in use.
    pub(crate) fn start_read(&self, address: Address, into: &[Span]) -> Option<(DriveEpoch, InFlight)> {
        let cell = self.segments.borrow().cell(address)?;
        self.drives.read(cell.drive, cell.offset, into)
    }

    /// Ends a read that [`RowReader::start_read`] began: verifies it, and mends what does not verify.
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
        // Rare, and large as a future: on the heap, so that every read need not have room for it.
        Box::pin(self.recover_run(run, crcs, into)).await
    }

    /// Notes that a drive failed to read what lies at `address`, or says that it is gone.
    fn note_error(&self, address: Address, drive: DriveEpoch, error: IoError) {
        if !self.drives.is_current(drive) {
            tracing::debug!(drive = %drive.index, %error, "a read from before the drive was lost has ended");
        } else if error.kind() == IoErrorKind::Gone {
            self.gone_drives.borrow_mut().push((drive, error));
        } else {
            tracing::warn!(drive = %drive.index, %address, %error, "a drive failed a read");
            self.note_bad_read(address, drive.index, false);
        }
    }

    /// Notes that a drive holds something else at `address` than was written there.
    pub(crate) fn note_corrupt(&self, address: Address, drive: DriveIndex) {
        tracing::warn!(%drive, %address, "a drive answered a read wrongly");
        self.note_bad_read(address, drive, true);
    }

    fn note_bad_read(&self, address: Address, drive: DriveIndex, wrong: bool) {
        // The column may have moved since.
        let cell = self.segments.borrow().cell(address).filter(|cell| cell.drive == drive);
        self.drives.bad_reads.note(BadRead { drive, offset: cell.map(|cell| cell.offset), wrong });
    }

    /// A read went wrong somewhere: block by block, read again privately, and rebuild what stays wrong.
    async fn recover_run(&self, run: BlockRun, crcs: &[u32], into: &Span) -> Result<ReadOutcome> {
        let mut outcome = ReadOutcome::Direct;
        for (index, crc) in (0..run.count).zip(crcs) {
            let address = run.address.plus_rows(index);
            let target = into.slice(index as usize * BLOCK..(index as usize + 1) * BLOCK);
            // The caller's memory may have been changed under us; only our own copy can accuse the drive.
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

    /// Computes a run from the other columns of its rows. `have` are cells that the caller holds of these rows,
    /// verified: they need not be read again.
    ///
    /// # Errors
    /// `Corrupt` if the other columns do not give a block back.
    pub(crate) async fn rebuild_run(
        &self,
        run: BlockRun,
        crcs: &[u32],
        into: &Span,
        have: &[CachedCells],
    ) -> Result<()> {
        let (id, wanted) = (run.address.segment(), run.address.column());
        let scheme = self.segments.borrow().scheme(id);
        let mut columns = RowSpan { id, row: run.address.row(), count: run.count, cells: Vec::new() };
        // Those first of which least is missing.
        let mut others: SmallVec<[u8; 32]> =
            (0..scheme.width()).filter(|column| *column != wanted.get()).collect();
        others.sort_by_key(|column| gaps(run.count, have, *column).iter().map(Range::len).sum::<usize>());
        // First as few as it takes; the rest only if what these give does not verify.
        let mut left = others.as_slice();
        while columns.cells.len() < usize::from(scheme.data()) && !left.is_empty() {
            let needed = usize::from(scheme.data()) - columns.cells.len();
            let (first, rest) = left.split_at(needed.min(left.len()));
            self.fill_columns(&mut columns, first, have).await;
            left = rest;
        }
        let mut block = Buffer::new(BLOCK);
        for (index, crc) in (0..run.count as usize).zip(crcs) {
            let accept = |bytes: &[u8]| crc32c(bytes) == *crc;
            let mut found =
                self.rebuild_cell(scheme, wanted, &columns.cells, index, block.as_mut_slice(), accept);
            if !found && !left.is_empty() {
                self.fill_columns(&mut columns, left, have).await;
                left = &[];
                found =
                    self.rebuild_cell(scheme, wanted, &columns.cells, index, block.as_mut_slice(), accept);
            }
            if !found {
                return Err(self.unreadable(run.address.plus_rows(u32::try_from(index).unwrap_or(0))));
            }
            into.copy_from(index * BLOCK, block.as_slice());
        }
        Ok(())
    }

    /// Reads columns `wanted` of some rows, as far as they are to be had.
    pub(crate) async fn read_columns(&self, into: &mut RowSpan, wanted: &[u8]) {
        self.fill_columns(into, wanted, &[]).await;
    }

    /// As [`RowReader::read_columns`]; of columns that are held in part, only the rest is read.
    async fn fill_columns(&self, into: &mut RowSpan, wanted: &[u8], have: &[CachedCells]) {
        let mut started = SmallVec::<[_; 8]>::new();
        for column in wanted.iter().copied() {
            let gaps = gaps(into.count, have, column);
            // A column that misses the later rows is left out altogether: rare, and the others do.
            let last = Address::new(into.id, Column::new(column), into.row.plus(into.count - 1));
            if !gaps.is_empty() && self.segments.borrow().cell(last).is_none() {
                continue;
            }
            let buffer = Buffer::new(into.count as usize * BLOCK);
            for held in have.iter().filter(|held| held.column == column) {
                buffer.span().slice(bytes_of(&held.rows())).copy_from_span(&held.cells);
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

    /// Computes the cell of column `wanted` in row `index` of `cells`, trying other columns where one of them must be
    /// wrong, until `accept` takes the result. False if nothing is accepted.
    pub(crate) fn rebuild_cell(
        &self,
        scheme: Scheme,
        wanted: Column,
        cells: &[(u8, Buffer)],
        index: usize,
        into: &mut [u8],
        accept: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let mut tried = 0;
        let present: ColumnSet =
            cells.iter().map(|(column, _)| *column).filter(|column| *column != wanted.get()).collect();
        combinations(present, scheme.data(), |sources| {
            tried += 1;
            self.decode_cell(scheme, sources, wanted, cells, index, into) && accept(into)
                || tried >= COMBINATIONS_MAX
        }) && accept(into)
    }

    /// Computes the cell of column `wanted` in row `index` of `cells` from just these columns.
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
            "a block cannot be read, and the other columns of its row do not give it back",
            place,
            None,
        )
    }
}

/// The rows of a column that are not held, of `count`.
fn gaps(count: u32, have: &[CachedCells], column: u8) -> SmallVec<[Range<u32>; 2]> {
    let mut held: SmallVec<[Range<u32>; 4]> =
        have.iter().filter(|held| held.column == column).map(CachedCells::rows).collect();
    held.sort_by_key(|rows| rows.start);
    let mut gaps = SmallVec::new();
    let mut at = 0;
    for rows in held {
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

/// True if each block of `bytes` has its CRC.
fn verify(bytes: &[u8], crcs: &[u32]) -> bool {
    bytes.chunks_exact(BLOCK).zip(crcs).all(|(block, crc)| crc32c(block) == *crc)
}

/// Calls `try_one` with each subset of `size` columns of `present` until it gives true. True if one did.
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
