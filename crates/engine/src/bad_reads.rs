//! Reads that drives did not answer as they should: noted by whoever read, counted by drive, and when it is too many.
//!
//! What counts against a drive is in how many of its zones it erred within a day: one bad place that is read a thousand times is
//! one zone. Must not know: what becomes of a drive that errs too often, how it is told.

use std::cell::RefCell;
use std::collections::BTreeSet;

use format::{DriveErrors, DriveIndex, ZoneIndex};
use reactor::Notify;

/// Noted and not yet counted at most: more at once say nothing new.
const PENDING_MAX: usize = 1024;
/// Seconds within which zones are counted: a day.
const WINDOW: u64 = 86_400;
/// Seconds after which errors are said again: an hour.
const REPORT_EVERY: u64 = 3600;
/// Of a small drive, one zone in so many is too many.
const SMALL_DRIVE_SHARE: u32 = 4;

/// A read that a drive did not answer as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadRead {
    pub(crate) drive: DriveIndex,
    /// Where on the drive, if that is known still.
    pub(crate) offset: Option<u64>,
    /// It gave other bytes than were written; else it gave none.
    pub(crate) wrong: bool,
}

/// Those that nobody has counted yet.
#[derive(Default)]
pub(crate) struct BadReads {
    pending: RefCell<Vec<BadRead>>,
    /// There are some, or [`BadReads::wake`].
    signal: Notify,
}

impl BadReads {
    pub(crate) fn note(&self, read: BadRead) {
        let mut pending = self.pending.borrow_mut();
        if pending.len() < PENDING_MAX {
            pending.push(read);
        }
        self.signal.notify();
    }

    /// Waits until some are noted, and takes them; none if it was woken for something else.
    pub(crate) async fn take_pending(&self) -> Vec<BadRead> {
        self.signal.notified().await;
        self.pending.take()
    }

    /// Ends a wait.
    pub(crate) fn wake(&self) {
        self.signal.notify();
    }
}

/// What is known of a drive's errors beside what the superblock says: it is forgotten when the pool is closed.
#[derive(Debug, Default)]
pub(crate) struct DriveErrorLog {
    /// The zones that are counted.
    zones: BTreeSet<ZoneIndex>,
    /// When errors were said last, and how many there were then.
    reported: Option<(u64, u64)>,
    /// It was said that the drive fails.
    pub(crate) failure_reported: bool,
}

/// In how many zones a drive with so many may err before it is to go; `None` for any number.
pub(crate) fn zone_error_limit(retire_after: u32, zones: u32) -> Option<u32> {
    (retire_after > 0).then(|| retire_after.min((zones / SMALL_DRIVE_SHARE).max(1)))
}

/// True if a drive errs in so many zones that it is to go.
pub(crate) fn is_failing(errors: &DriveErrors, limit: Option<u32>) -> bool {
    limit.is_some_and(|limit| errors.zones >= limit)
}

impl DriveErrorLog {
    /// Counts a read at `now`, which was in `zone` if that is known. True if that zone counts against the drive anew.
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
        // What has failed does not become sound by waiting.
        let over = now.saturating_sub(errors.counting_since) >= WINDOW && !is_failing(errors, limit);
        if over {
            (errors.counting_since, errors.zones) = (now, 0);
            self.zones.clear();
        }
        let counts = zone.is_some_and(|zone| self.zones.insert(zone));
        errors.zones += u32::from(counts);
        counts
    }

    /// How many errors there are to be said at `now`, if it is time.
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

    /// What was counted before the pool was opened has been said.
    pub(crate) fn of(errors: &DriveErrors) -> Self {
        let all = errors.unreadable + errors.wrong;
        Self { reported: (all > 0).then_some((errors.last, all)), ..Self::default() }
    }

    /// Nothing counts against the drive any more; the zones that are known do not count again.
    pub(crate) fn clear(&mut self, errors: &mut DriveErrors, now: u64) {
        (errors.counting_since, errors.zones) = (now, 0);
        self.failure_reported = false;
    }
}

#[cfg(test)]
#[path = "bad_reads_tests.rs"]
mod tests;
