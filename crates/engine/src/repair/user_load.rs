//! What users do while something in the background wants to know, and how long it takes them: by themselves, and beside pieces of that work,
//! wherever in the pool these are under way, since all of it shares the drives.
//!
//! Always true: each shard writes only its own counts of users. Must not know: who the users are, what is done in the background.

use std::ops::Sub;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use reactor::{Instant, Reactor};

use super::latency_windows::{LatencyHistogram, LatencyWindows, RecentLatency};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct UserLoad {
    /// How many want to know.
    watchers: AtomicU32,
    shards: Box<[ShardLoad]>,
    /// Pieces of background work that were begun, and those that are under way.
    pieces: AtomicU64,
    under_way: AtomicU32,
}

/// What users did in a shard, on a cache line of its own: each counts its own often.
#[repr(align(64))]
#[derive(Debug, Default)]
struct ShardLoad {
    begun: AtomicU64,
    uncontended: OpCounter,
    contended: OpCounter,
    latency: LatencyWindows,
}

#[derive(Debug, Default)]
struct OpCounter {
    operations: AtomicU64,
    nanos: AtomicU64,
}

/// Operations that are over, and how long they took, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OpSum {
    pub(super) operations: u64,
    pub(super) nanos: u64,
}

/// What users had done at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OpTotals {
    /// Operations begun.
    pub(super) begun: u64,
    /// Those of them that are over, and met no background work on the drives.
    pub(super) uncontended: OpSum,
    /// Those that met some.
    pub(super) contended: OpSum,
}

/// An operation of a user. Dropped when it is over.
pub(crate) struct UserOp<'a> {
    users: &'a UserLoad,
    used: &'a ShardLoad,
    at: Instant,
    /// Pieces begun before it; `None` if one was under way.
    pieces: Option<u64>,
}

impl UserLoad {
    pub(super) fn new(shards: usize) -> Self {
        Self { shards: (0..shards).map(|_| ShardLoad::default()).collect(), ..Self::default() }
    }

    /// A user begins to read or write in this shard. `None` while nobody wants to know.
    pub(crate) fn begin(&self, shard: usize) -> Option<UserOp<'_>> {
        if self.watchers.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.begin_at(shard, Reactor::try_current()?.now())
    }

    /// As [`UserLoad::begin`], at `at`.
    pub(super) fn begin_at(&self, shard: usize, at: Instant) -> Option<UserOp<'_>> {
        let used = self.shards.get(shard)?;
        add(&used.begun, 1);
        let is_quiet = self.under_way.load(Ordering::Relaxed) == 0;
        let pieces = is_quiet.then(|| self.pieces.load(Ordering::Relaxed));
        Some(UserOp { users: self, used, at, pieces })
    }

    /// Somebody wants to know, or no longer.
    pub(super) fn watch(&self, watches: bool) {
        if watches {
            self.watchers.fetch_add(1, Ordering::Relaxed);
        } else {
            self.watchers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn done(&self) -> OpTotals {
        self.shards.iter().fold(OpTotals::default(), |done, used| OpTotals {
            begun: done.begun + used.begun.load(Ordering::Relaxed),
            uncontended: used.uncontended.added_to(done.uncontended),
            contended: used.contended.added_to(done.contended),
        })
    }

    /// How long operations took lately, of those that somebody wanted to know of; `None` if there were none.
    pub(super) fn recent_latency(&self, now: Instant) -> Option<RecentLatency> {
        let mut counts = LatencyHistogram::default();
        self.shards.iter().for_each(|used| used.latency.add_to(&mut counts, now));
        counts.summary()
    }

    /// A piece of background work begins.
    pub(super) fn piece_begins(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.pieces.fetch_add(1, Ordering::Relaxed);
    }

    /// A piece of background work is over.
    pub(super) fn piece_ends(&self) {
        self.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpTotals {
    /// Operations that are not over.
    pub(super) fn under_way(&self) -> u64 {
        self.begun.saturating_sub(self.uncontended.operations + self.contended.operations)
    }
}

impl OpSum {
    /// How long one took in the mean, in nanoseconds.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn mean(self) -> Option<f64> {
        (self.operations > 0).then(|| self.nanos as f64 / self.operations as f64)
    }
}

impl Sub for OpSum {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        let operations = self.operations.saturating_sub(earlier.operations);
        Self { operations, nanos: self.nanos.saturating_sub(earlier.nanos) }
    }
}

impl OpCounter {
    fn added_to(&self, sum: OpSum) -> OpSum {
        let operations = sum.operations + self.operations.load(Ordering::Relaxed);
        OpSum { operations, nanos: sum.nanos + self.nanos.load(Ordering::Relaxed) }
    }
}

impl UserOp<'_> {
    /// It is over.
    pub(super) fn end_at(&self, now: Instant) {
        let met_none = self.pieces == Some(self.users.pieces.load(Ordering::Relaxed));
        let timed = if met_none { &self.used.uncontended } else { &self.used.contended };
        let took = u64::try_from(now.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        add(&timed.nanos, took);
        add(&timed.operations, 1);
        self.used.latency.count(now, took);
    }
}

impl Drop for UserOp<'_> {
    fn drop(&mut self) {
        // At the end of a reactor nothing takes any time.
        self.end_at(Reactor::try_current().map_or(self.at, |reactor| reactor.now()));
    }
}

/// Nobody else writes it.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
