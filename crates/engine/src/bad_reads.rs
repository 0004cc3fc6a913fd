//! Reads that drives did not answer as they should: noted by whoever read, counted by drive, and when it is too many.
//!
//! What counts against a drive is in how many of its zones it erred within a day: one bad place that is read a thousand times is
//! one zone. Must not know: what becomes of a drive that errs too often, how it is told.

use std::cell::RefCell;
use std::collections::BTreeSet;

use format::{DriveErrors, DriveIndex, ZoneIndex};
use reactor::Notify;

/// Noted and not yet counted at most: more at once say nothing new.
const NOTED_MAX: usize = 1024;
/// Seconds within which zones are counted: a day.
const WINDOW: u64 = 86_400;
/// Seconds after which errors are said again: an hour.
const SAY_AGAIN: u64 = 3600;
/// Of a small drive, one zone in so many is too many.
const SMALL_PART: u32 = 4;

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
    noted: RefCell<Vec<BadRead>>,
    /// There are some, or [`BadReads::wake`].
    noticed: Notify,
}

impl BadReads {
    pub(crate) fn note(&self, read: BadRead) {
        let mut noted = self.noted.borrow_mut();
        if noted.len() < NOTED_MAX {
            noted.push(read);
        }
        self.noticed.notify();
    }

    /// Waits until some are noted, and takes them; none if it was woken for something else.
    pub(crate) async fn taken(&self) -> Vec<BadRead> {
        self.noticed.notified().await;
        self.noted.take()
    }

    /// Ends a wait.
    pub(crate) fn wake(&self) {
        self.noticed.notify();
    }
}

/// What is known of a drive's errors beside what the superblock says: it is forgotten when the pool is closed.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The zones that are counted.
    zones: BTreeSet<ZoneIndex>,
    /// When errors were said last, and how many there were then.
    said: Option<(u64, u64)>,
    /// It was said that the drive fails.
    pub(crate) said_failing: bool,
}

/// In how many zones a drive with so many may err before it is to go; `None` for any number.
pub(crate) fn zones_borne(retire_after: u32, zones: u32) -> Option<u32> {
    (retire_after > 0).then(|| retire_after.min((zones / SMALL_PART).max(1)))
}

/// True if a drive errs in so many zones that it is to go.
pub(crate) fn is_failing(errors: &DriveErrors, borne: Option<u32>) -> bool {
    borne.is_some_and(|borne| errors.zones >= borne)
}

impl Known {
    /// Counts a read at `now`, which was in `zone` if that is known. True if that zone counts against the drive anew.
    pub(crate) fn count(
        &mut self,
        errors: &mut DriveErrors,
        (zone, wrong): (Option<ZoneIndex>, bool),
        borne: Option<u32>,
        now: u64,
    ) -> bool {
        let kind = if wrong { &mut errors.wrong } else { &mut errors.unreadable };
        *kind += 1;
        errors.last = now;
        // What has failed does not become sound by waiting.
        let over = now.saturating_sub(errors.counting_since) >= WINDOW && !is_failing(errors, borne);
        if over {
            (errors.counting_since, errors.zones) = (now, 0);
            self.zones.clear();
        }
        let counts = zone.is_some_and(|zone| self.zones.insert(zone));
        errors.zones += u32::from(counts);
        counts
    }

    /// How many errors there are to be said at `now`, if it is time.
    pub(crate) fn due(&mut self, errors: &DriveErrors, now: u64) -> Option<u64> {
        let all = errors.unreadable + errors.wrong;
        let (at, before) = self.said.unwrap_or((0, 0));
        let due = self.said.is_none() || now.saturating_sub(at) >= SAY_AGAIN;
        if !due || all == before {
            return None;
        }
        self.said = Some((now, all));
        Some(all - before)
    }

    /// What was counted before the pool was opened has been said.
    pub(crate) fn of(errors: &DriveErrors) -> Self {
        let all = errors.unreadable + errors.wrong;
        Self { said: (all > 0).then_some((errors.last, all)), ..Self::default() }
    }

    /// Nothing counts against the drive any more; the zones that are known do not count again.
    pub(crate) fn forgive(&mut self, errors: &mut DriveErrors, now: u64) {
        (errors.counting_since, errors.zones) = (now, 0);
        self.said_failing = false;
    }
}

#[cfg(test)]
#[path = "bad_reads_tests.rs"]
mod tests;
