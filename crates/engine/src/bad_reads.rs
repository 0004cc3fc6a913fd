//! Failed and corrupt reads: recorded by the reader, counted per drive, compared with a limit.
//!
//! Only the number of distinct zones with errors within one day counts against a drive: a bad
//! sector that is read a thousand times counts as one zone. Must not know: the consequences for a
//! failing drive, and the wording of events.

use std::cell::RefCell;
use std::collections::BTreeSet;

use format::{DriveErrors, DriveIndex, ZoneIndex};
use reactor::{IoError, Notify};

/// Maximum number of recorded, uncounted reads; further ones are dropped.
const PENDING_MAX: usize = 1024;
/// Window in which zones with errors are counted, in seconds (one day).
const WINDOW: u64 = 86_400;
/// Minimum interval between two reports of a drive's errors, in seconds (one hour).
const REPORT_EVERY: u64 = 3600;
/// The limit is never more than 1/4 of the zones, which matters for small drives.
const SMALL_DRIVE_SHARE: u32 = 4;

/// A read that a drive failed or answered with corrupt data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadRead {
    pub(crate) drive: DriveIndex,
    /// Byte offset on the drive, if still known.
    pub(crate) offset: Option<u64>,
    /// The drive's error; `None` if the data was corrupt.
    pub(crate) error: Option<IoError>,
}

/// Recorded reads that are not counted yet.
#[derive(Default)]
pub(crate) struct BadReads {
    pending: RefCell<Vec<BadRead>>,
    /// Signalled by [`BadReads::record`] and [`BadReads::wake`].
    signal: Notify,
}

impl BadReads {
    pub(crate) fn record(&self, read: BadRead) {
        let mut pending = self.pending.borrow_mut();
        if pending.len() < PENDING_MAX {
            pending.push(read);
        }
        self.signal.notify();
    }

    /// Waits for recorded reads and takes them; empty after [`BadReads::wake`].
    pub(crate) async fn take_pending(&self) -> Vec<BadRead> {
        self.signal.notified().await;
        self.pending.take()
    }

    /// Ends a wait in [`BadReads::take_pending`].
    pub(crate) fn wake(&self) {
        self.signal.notify();
    }
}

/// Error state of a drive in addition to the superblock's counters; lost when the pool is closed.
#[derive(Debug, Default)]
pub(crate) struct DriveErrorLog {
    /// Zones already counted.
    zones: BTreeSet<ZoneIndex>,
    /// Time of the last report, and the error count at that time.
    reported: Option<(u64, u64)>,
    /// The drive was reported as failing.
    pub(crate) failure_reported: bool,
}

/// Number of zones with errors at which a drive with `zones` zones fails; `None` for no limit.
pub(crate) fn zone_error_limit(retire_after: u32, zones: u32) -> Option<u32> {
    (retire_after > 0).then(|| retire_after.min((zones / SMALL_DRIVE_SHARE).max(1)))
}

/// Returns true if the number of zones with errors has reached the limit.
pub(crate) fn is_failing(errors: &DriveErrors, limit: Option<u32>) -> bool {
    limit.is_some_and(|limit| errors.zones >= limit)
}

impl DriveErrorLog {
    /// Counts a bad read at time `now` in `zone`, if known. Returns true if the zone was not
    /// counted before.
    pub(crate) fn count(
        &mut self,
        errors: &mut DriveErrors,
        (zone, wrong): (Option<ZoneIndex>, bool),
        limit: Option<u32>,
        now: u64,
    ) -> bool {
        let kind = if wrong { &mut errors.wrong } else { &mut errors.unreadable };
        *kind += 1;
        errors.last = now;
        // A drive that has reached the limit stays failing after the window ends.
        let over = now.saturating_sub(errors.counting_since) >= WINDOW && !is_failing(errors, limit);
        if over {
            (errors.counting_since, errors.zones) = (now, 0);
            self.zones.clear();
        }
        let counts = zone.is_some_and(|zone| self.zones.insert(zone));
        errors.zones += u32::from(counts);
        counts
    }

    /// Returns the number of unreported errors if a report is due at `now`, and marks them as
    /// reported.
    pub(crate) fn take_unreported(&mut self, errors: &DriveErrors, now: u64) -> Option<u64> {
        let all = errors.unreadable + errors.wrong;
        let (at, before) = self.reported.unwrap_or((0, 0));
        let due = self.reported.is_none() || now.saturating_sub(at) >= REPORT_EVERY;
        if !due || all == before {
            return None;
        }
        self.reported = Some((now, all));
        Some(all - before)
    }

    /// Starts from the superblock's counters; errors from before the pool was opened count as
    /// reported.
    pub(crate) fn of(errors: &DriveErrors) -> Self {
        let all = errors.unreadable + errors.wrong;
        Self { reported: (all > 0).then_some((errors.last, all)), ..Self::default() }
    }

    /// Resets the count of zones with errors. Zones that were counted before do not count again.
    pub(crate) fn clear(&mut self, errors: &mut DriveErrors, now: u64) {
        (errors.counting_since, errors.zones) = (now, 0);
        self.failure_reported = false;
    }
}

#[cfg(test)]
#[path = "bad_reads_tests.rs"]
mod tests;
