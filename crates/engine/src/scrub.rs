//! Scrubbing, for everybody who decides by it or shows it: how fast it may go, how far it is, what the last one found.
//!
//! A scrub reads every written row of every segment, and compares every cell with what the segment's headers say. Must not know:
//! segments, how rows are read and healed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::{DriveIndex, ScrubTally, SegmentId};

use crate::repair::BackgroundLimiter;

/// How far scrubbing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Seconds from the beginning of one scrub to that of the next; 0 for only when asked.
    pub every: u64,
    /// One is under way.
    pub running: bool,
    /// It is told not to go on.
    pub paused: bool,
    /// What it has found so far.
    pub current: ScrubTally,
    /// Bytes that it has still to read.
    pub bytes_left: u64,
    /// Bytes that it reads a second, lately.
    pub bytes_per_second: u64,
    /// Columns of segments with damage that is not healed yet: repair is at it, or wants space or a drive.
    pub unhealed: u64,
    /// What the last one found that came to its end.
    pub last: ScrubTally,
}

impl ScrubStatus {
    /// Takes in what a shard says.
    pub(crate) fn add(&mut self, progress: ScrubProgress) {
        self.unhealed += progress.unhealed;
        if self.running {
            self.bytes_left += progress.bytes_left;
            self.bytes_per_second += progress.bytes_per_second;
        }
    }

    /// Seconds that the rest takes at the speed of late; `None` while nobody can tell.
    pub fn seconds_left(&self) -> Option<u64> {
        (self.running && !self.paused).then(|| self.bytes_left.checked_div(self.bytes_per_second))?
    }
}

/// What a shard has to say of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScrubProgress {
    pub(crate) bytes_left: u64,
    pub(crate) bytes_per_second: u64,
    pub(crate) unhealed: u64,
}

/// Damage in a column of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) drive: DriveIndex,
    pub(crate) segment: SegmentId,
    pub(crate) column: u8,
    /// The first row.
    pub(crate) row: u32,
    /// Rows that could not be read, and those that were not what they must be.
    pub(crate) unreadable: u64,
    pub(crate) wrong: u64,
}

/// What was found in a segment, or in several.
#[derive(Debug, Default)]
pub(crate) struct ScrubFindings {
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) damage: Vec<Damage>,
}

impl ScrubFindings {
    /// Cells that were not what they must be.
    pub(crate) fn damaged(&self) -> u64 {
        self.damage.iter().map(|damage| damage.unreadable + damage.wrong).sum()
    }
}

/// What the reactors of a pool share of it.
#[derive(Debug, Default)]
pub(crate) struct Scrub {
    /// How fast it may go, apart from repair.
    pub(crate) limits: BackgroundLimiter,
    /// Which scrub is under way: one that is not this one has been called off.
    run: AtomicU64,
}

impl Scrub {
    /// With the users that `repair` knows of.
    pub(crate) fn beside(repair: &BackgroundLimiter) -> Arc<Self> {
        Arc::new(Self { limits: repair.beside(), run: AtomicU64::new(0) })
    }

    /// A scrub begins, or the one that is under way is called off: gives the number of the next.
    pub(crate) fn next_run(&self) -> u64 {
        self.run.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// True if this scrub is under way.
    pub(crate) fn is_run(&self, run: u64) -> bool {
        self.run.load(Ordering::Relaxed) == run
    }
}
