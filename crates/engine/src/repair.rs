//! Repair status and rate limits, shared by the shards, the control and the status output.
//!
//! Repair completes segments that lack columns. Must not know: segments, and the computation of
//! columns.

mod background_rate;
mod budget;
mod client_load;
mod latency_windows;
mod throttle;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) use budget::BackgroundBudget;
use client_load::ClientLoad;
pub(crate) use client_load::ClientOp;
pub use latency_windows::RecentLatency;
use reactor::Instant;
pub(crate) use throttle::{BackgroundPermit, Throttle};

/// Limits for repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairLimits {
    /// Repair is paused.
    pub paused: bool,
    /// Maximum write rate of all shards together, in bytes per second; 0 for no limit. Under client
    /// I/O repair slows down further, but keeps at least 25 % of drive time within this limit.
    pub bytes_per_second: u64,
}

/// State of repair; later variants need more attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RepairState {
    /// Every segment has all of its columns on online drives.
    #[default]
    Complete,
    /// Missing columns are being written.
    Running,
    /// Columns are missing, and repair is paused.
    Paused,
    /// A missing column needs another drive: all online drives hold a column of the segment. Add a
    /// drive.
    NeedsDrive,
    /// The online drives have too little free space.
    NeedsSpace,
    /// Some segments lack more columns than their scheme tolerates: their data cannot be computed.
    Lost,
}

/// Progress of repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairStatus {
    /// State; for several shards, the state that needs the most attention.
    pub state: RepairState,
    /// Bytes of missing columns.
    pub bytes_left: u64,
    /// Bytes written since the pool was last complete, or since it was opened.
    pub bytes_done: u64,
    /// Recent write rate, in bytes per second.
    pub bytes_per_second: u64,
    /// Rows with a cell that could not be computed because other cells were damaged as well.
    pub damaged_rows: u64,
}

impl RepairStatus {
    /// Adds another shard's status.
    pub(crate) fn add(&mut self, other: &Self) {
        self.state = self.state.max(other.state);
        self.bytes_left += other.bytes_left;
        self.bytes_done += other.bytes_done;
        self.bytes_per_second += other.bytes_per_second;
        self.damaged_rows += other.damaged_rows;
    }

    /// Estimated seconds until repair finishes; `None` if the rate is unknown.
    pub fn seconds_left(&self) -> Option<u64> {
        (self.state == RepairState::Running).then(|| self.bytes_left.checked_div(self.bytes_per_second))?
    }
}

/// Rate limits of a background job, shared by the reactors of a pool.
#[derive(Debug, Default)]
pub(crate) struct BackgroundLimiter {
    paused: AtomicBool,
    rate: AtomicU64,
    /// Number of shards that run the job.
    working: AtomicU32,
    /// Client I/O on the same drives.
    clients: Arc<ClientLoad>,
}

impl BackgroundLimiter {
    pub(crate) fn new(limits: RepairLimits, shards: usize) -> Self {
        let repair = Self { clients: Arc::new(ClientLoad::new(shards)), ..Self::default() };
        repair.set(limits);
        repair
    }

    /// Creates separate limits that share the client load counters.
    pub(crate) fn with_shared_load(&self) -> Self {
        Self { clients: self.clients.clone(), ..Self::default() }
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

    /// Creates the budget of one shard, for all of its jobs.
    pub(crate) fn budget(&self) -> BackgroundBudget {
        BackgroundBudget::new(self.clients.clone())
    }

    /// Recent latency of client operations while a background job was running.
    pub(crate) fn recent_latency(&self, now: Instant) -> Option<RecentLatency> {
        self.clients.recent_latency(now)
    }

    /// Bytes that one shard may write in this time; `u64::MAX` for no limit.
    pub(crate) fn bytes_within(&self, time: Duration) -> u64 {
        self.rate_per_shard().map_or(u64::MAX, |rate| rate.saturating_mul(time.as_secs()))
    }

    /// Registers or unregisters a shard that runs the job.
    fn set_working(&self, working: bool) {
        if working {
            self.working.fetch_add(1, Ordering::Relaxed);
        } else {
            self.working.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Number of shards that run the job.
    fn working(&self) -> u32 {
        self.working.load(Ordering::Relaxed)
    }

    /// Write rate limit of one shard, in bytes per second; `None` for no limit.
    fn rate_per_shard(&self) -> Option<u64> {
        let (rate, working) = (self.rate.load(Ordering::Relaxed), self.working());
        (rate > 0).then(|| (rate / u64::from(working.max(1))).max(1))
    }
}

#[cfg(test)]
#[path = "repair_tests.rs"]
mod tests;
