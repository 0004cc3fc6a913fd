//! How far repair is and how fast it may go, for everybody who decides by it or shows it.
//!
//! Repair completes segments that miss columns. Must not know: segments, how columns are computed.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use reactor::Instant;

/// How fast repair may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairLimits {
    /// It does nothing until this is taken back.
    pub paused: bool,
    /// Bytes that it writes a second at most, all shards together; 0 for as many as the drives take. While volumes are being
    /// used it takes a quarter of the time at most, whatever stands here.
    pub bytes_per_second: u64,
}

/// What repair is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepairState {
    /// Every segment has all its columns on drives in use.
    #[default]
    Whole,
    /// It writes missing columns.
    Working,
    /// There is something to do, and it is told not to.
    Paused,
    /// What is missing needs a drive that has no column of the segment yet: one must be added.
    NeedsDrive,
    /// The drives that are left have too little free space.
    NeedsSpace,
    /// Some segments miss more columns than their scheme bears: what they held cannot be computed.
    Lost,
}

/// How far repair is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairStatus {
    /// What it is doing. Of several shards, what needs most attention.
    pub state: RepairState,
    /// Bytes of columns that are missing.
    pub bytes_left: u64,
    /// Bytes written since everything was last whole, or the pool was opened.
    pub bytes_done: u64,
    /// Bytes written a second, lately.
    pub bytes_per_second: u64,
    /// Rows of which a cell could not be computed because others were damaged as well.
    pub damaged_rows: u64,
}

impl RepairStatus {
    /// Takes in another shard's.
    pub(crate) fn add(&mut self, other: &Self) {
        self.state = self.state.max(other.state);
        self.bytes_left += other.bytes_left;
        self.bytes_done += other.bytes_done;
        self.bytes_per_second += other.bytes_per_second;
        self.damaged_rows += other.damaged_rows;
    }

    /// Seconds that the rest takes at the speed of late; `None` while nobody can tell.
    pub fn seconds_left(&self) -> Option<u64> {
        (self.state == RepairState::Working).then(|| self.bytes_left.checked_div(self.bytes_per_second))?
    }
}

/// The limits, shared by the reactors of a pool.
#[derive(Debug, Default)]
pub(crate) struct Repair {
    paused: AtomicBool,
    rate: AtomicU64,
    /// Shards that are at it.
    working: AtomicU32,
    /// What users have done, by shard: all of them share the drives.
    used: Arc<[Used]>,
}

/// On a cache line of its own: each shard counts its own often.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Used(AtomicU64);

impl Repair {
    pub(crate) fn new(limits: RepairLimits, shards: usize) -> Self {
        let used = (0..shards).map(|_| Used::default()).collect();
        let repair = Self { used, ..Self::default() };
        repair.set(limits);
        repair
    }

    /// Limits of something else, beside the same users.
    pub(crate) fn beside(&self) -> Self {
        Self { used: self.used.clone(), ..Self::default() }
    }

    pub(crate) fn set(&self, limits: RepairLimits) {
        self.paused.store(limits.paused, Ordering::Relaxed);
        self.rate.store(limits.bytes_per_second, Ordering::Relaxed);
    }

    pub(crate) fn limits(&self) -> RepairLimits {
        let (paused, rate) = (self.paused.load(Ordering::Relaxed), self.rate.load(Ordering::Relaxed));
        RepairLimits { paused, bytes_per_second: rate }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// A user reads or writes in this shard.
    pub(crate) fn note_use(&self, shard: usize) {
        if let Some(Used(used)) = self.used.get(shard) {
            // Nobody else writes it.
            used.store(used.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    fn used(&self) -> u64 {
        self.used.iter().map(|Used(used)| used.load(Ordering::Relaxed)).sum()
    }

    /// Bytes that one of the shards that are at it may write in this time; `u64::MAX` for any number.
    pub(crate) fn bytes_within(&self, time: Duration) -> u64 {
        self.share().map_or(u64::MAX, |share| share.saturating_mul(time.as_secs()))
    }

    /// A shard begins, or ends.
    pub(crate) fn set_working(&self, works: bool) {
        if works {
            self.working.fetch_add(1, Ordering::Relaxed);
        } else {
            self.working.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Bytes a second that one of the shards that are at it may write; `None` for any number.
    fn share(&self) -> Option<u64> {
        let (rate, working) = (self.rate.load(Ordering::Relaxed), self.working.load(Ordering::Relaxed));
        (rate > 0).then(|| (rate / u64::from(working.max(1))).max(1))
    }
}

/// Times as long as a piece of work took that repair rests after it while volumes are being used: a quarter of the
/// drives' time is its share then, however fast they are.
const REST_PARTS: u32 = 3;
/// Volumes count as being used for as long after they were.
const USED_FOR: Duration = Duration::from_millis(100);
/// It rests no longer than that at once, so that it soon sees that there is nothing to wait for any more.
const REST_MAX: Duration = Duration::from_millis(500);
/// How long the speed is measured before it is told.
const WINDOW: Duration = Duration::from_secs(5);

/// One shard's speed: measured, and kept within the limits.
#[derive(Default)]
pub(crate) struct Throttle {
    /// When the next piece may begin, by the limit that it was reckoned with.
    due: Cell<(Instant, u64)>,
    /// What users had done when repair last looked, and when it last saw them do something.
    used: Cell<(u64, Option<Instant>)>,
    /// Begin of the window, and bytes written in it.
    window: Cell<(Instant, u64)>,
    rate: Cell<u64>,
}

impl Throttle {
    /// Work begins anew at `now`.
    pub(crate) fn begin(&self, now: Instant) {
        self.due.set((now, 0));
        self.window.set((now, 0));
        self.rate.set(0);
    }

    /// A piece of `bytes` was written, from `begun` to `now`. Gives until when to leave the drives to users.
    pub(crate) fn wrote(&self, repair: &Repair, bytes: u64, begun: Instant, now: Instant) -> Instant {
        self.count(bytes, now);
        if let Some(share) = repair.share() {
            // What was not used of the limit is not saved up.
            let (due, _) = self.due.get();
            let takes = Duration::from_secs_f64(to_float(bytes) / to_float(share));
            self.due.set((due.max(begun) + takes, share));
        }
        let (used, (seen, at)) = (repair.used(), self.used.get());
        let at = if seen == used { at } else { Some(now) };
        self.used.set((used, at));
        if at.is_none_or(|at| now.since(at) > USED_FOR) {
            return now;
        }
        now + (now.since(begun) * REST_PARTS).min(REST_MAX)
    }

    /// Until when to wait, at `now`, because of the limit; to be asked again then.
    pub(crate) fn waits(&self, repair: &Repair, now: Instant) -> Option<Instant> {
        let (due, share) = self.due.get();
        let holds = due > now && repair.share() == Some(share);
        holds.then(|| due.min(now + REST_MAX))
    }

    fn count(&self, bytes: u64, now: Instant) {
        let (since, counted) = self.window.get();
        let (length, counted) = (now.since(since), counted + bytes);
        let per_second = to_float(counted) / length.as_secs_f64().max(1e-3);
        if length >= WINDOW {
            self.window.set((now, 0));
            self.rate.set(to_whole(per_second));
        } else {
            self.window.set((since, counted));
            // Told before the first window is over, corrected by it.
            if self.rate.get() == 0 && length >= WINDOW / 10 {
                self.rate.set(to_whole(per_second));
            }
        }
    }

    /// Bytes a second, lately.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.get()
    }
}

#[allow(clippy::cast_precision_loss)]
fn to_float(number: u64) -> f64 {
    number as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn to_whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
