//! Scrub state shared by the control, the shards and the status output.
//!
//! A scrub reads every written row of every segment and compares every cell with the segment's
//! headers. Must not know: segments, and how rows are read and repaired.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::{DriveIndex, ScrubTally, SegmentId};

use crate::repair::BackgroundLimiter;

/// Progress and results of scrubbing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Seconds from the start of one scrub to the start of the next; 0 disables scheduled scrubs.
    pub every: u64,
    /// A scrub is running or paused.
    pub running: bool,
    /// Scrubbing is paused.
    pub paused: bool,
    /// Findings of the running scrub.
    pub current: ScrubTally,
    /// Bytes that the running scrub still has to read.
    pub bytes_left: u64,
    /// Recent read rate, in bytes per second.
    pub bytes_per_second: u64,
    /// Columns of segments with damage that is not repaired yet, found by a scrub or an opening.
    pub unhealed: u64,
    /// Findings of the last scrub that finished.
    pub last: ScrubTally,
}

impl ScrubStatus {
    /// Adds a shard's progress.
    pub(crate) fn add(&mut self, progress: ScrubProgress) {
        self.unhealed += progress.unhealed;
        if self.running {
            self.bytes_left += progress.bytes_left;
            self.bytes_per_second += progress.bytes_per_second;
        }
    }

    /// Estimated seconds until the scrub finishes; `None` if the rate is unknown.
    pub fn seconds_left(&self) -> Option<u64> {
        (self.running && !self.paused).then(|| self.bytes_left.checked_div(self.bytes_per_second))?
    }
}

/// A shard's part of [`ScrubStatus`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScrubProgress {
    pub(crate) bytes_left: u64,
    pub(crate) bytes_per_second: u64,
    pub(crate) unhealed: u64,
}

/// Damage in one column of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) drive: DriveIndex,
    pub(crate) segment: SegmentId,
    pub(crate) column: u8,
    /// First damaged row.
    pub(crate) row: u32,
    /// Number of unreadable rows, then of rows with wrong contents.
    pub(crate) unreadable: u64,
    pub(crate) wrong: u64,
}

/// Findings in one or more segments.
#[derive(Debug, Default)]
pub(crate) struct ScrubFindings {
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) damage: Vec<Damage>,
}

impl ScrubFindings {
    /// Number of damaged cells.
    pub(crate) fn damaged(&self) -> u64 {
        self.damage.iter().map(|damage| damage.unreadable + damage.wrong).sum()
    }
}

/// Scrub state shared by the reactors of a pool.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// Rate limits of scrubbing, separate from those of repair.
    pub(crate) limits: BackgroundLimiter,
    /// Number of the current run. A run with another number is cancelled.
    run: AtomicU64,
}

impl Scrub {
    /// Creates the state with the client load counters of `repair`.
    pub(crate) fn new(repair: &BackgroundLimiter) -> Arc<Self> {
        Arc::new(Self { limits: repair.with_shared_load(), run: AtomicU64::new(0) })
    }

    /// Starts a new run, which cancels the current one; returns the new number.
    pub(crate) fn next_run(&self) -> u64 {
        self.run.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns true if `run` is the current run.
    pub(crate) fn is_run(&self, run: u64) -> bool {
        self.run.load(Ordering::Relaxed) == run
    }
}
