//! How far repair is and how fast it may go, for everybody who decides by it or shows it.
//!
//! Repair completes segments that miss columns. Must not know: segments, how columns are computed.

mod background_rate;
mod latency_windows;
mod throttle;
mod user_load;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

pub use latency_windows::RecentLatency;
use reactor::Instant;
pub(crate) use throttle::{BackgroundPermit, Throttle};
use user_load::UserLoad;
pub(crate) use user_load::UserOp;

/// How fast repair may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairLimits {
    /// It does nothing until this is taken back.
    pub paused: bool,
    /// Bytes that it writes a second at most, all shards together; 0 for as many as the drives take. While volumes are being
    /// used it does as much as users hardly notice, and a quarter of the time at least, within what stands here.
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
pub(crate) struct BackgroundLimiter {
    paused: AtomicBool,
    rate: AtomicU64,
    /// Shards that are at it.
    working: AtomicU32,
    /// Who else uses the drives.
    users: Arc<UserLoad>,
}

impl BackgroundLimiter {
    pub(crate) fn new(limits: RepairLimits, shards: usize) -> Self {
        let repair = Self { users: Arc::new(UserLoad::new(shards)), ..Self::default() };
        repair.set(limits);
        repair
    }

    /// Limits of something else, beside the same users.
    pub(crate) fn beside(&self) -> Self {
        Self { users: self.users.clone(), ..Self::default() }
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

    /// A user begins to read or write in this shard. Dropped when it is over; `None` while nobody wants to know.
    pub(crate) fn track_user_op(&self, shard: usize) -> Option<UserOp<'_>> {
        self.users.begin(shard)
    }

    /// How long users' operations took lately, while something was at work beside them.
    pub(crate) fn recent_latency(&self, now: Instant) -> Option<RecentLatency> {
        self.users.recent_latency(now)
    }

    /// Bytes that one of the shards that are at it may write in this time; `u64::MAX` for any number.
    pub(crate) fn bytes_within(&self, time: Duration) -> u64 {
        self.share().map_or(u64::MAX, |share| share.saturating_mul(time.as_secs()))
    }

    /// A shard begins, or ends.
    pub(crate) fn set_working(&self, works: bool) {
        self.users.watch(works);
        if works {
            self.working.fetch_add(1, Ordering::Relaxed);
        } else {
            self.working.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Shards that are at it.
    fn working(&self) -> u32 {
        self.working.load(Ordering::Relaxed)
    }

    /// Bytes a second that one of the shards that are at it may write; `None` for any number.
    fn share(&self) -> Option<u64> {
        let (rate, working) = (self.rate.load(Ordering::Relaxed), self.working());
        (rate > 0).then(|| (rate / u64::from(working.max(1))).max(1))
    }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
