//! Latency of client operations while background jobs run: uncontended, and overlapping background
//! chunks in any shard, because all shards share the drives.
//!
//! Always true: each shard writes only its own counters. Must not know: the clients, and the kind
//! of background work.

use std::ops::Sub;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use reactor::{Instant, Reactor};

use super::latency_windows::{LatencyHistogram, LatencyWindows, RecentLatency};

use crate::invariant::clamped;

/// Client load of a pool while background jobs run.
#[derive(Debug, Default)]
pub(crate) struct ClientLoad {
    /// Number of shards with a running background job.
    watchers: AtomicU32,
    shards: Box<[ShardLoad]>,
    /// Number of background chunks started, and of those still running.
    chunks: AtomicU64,
    running: AtomicU32,
}

/// Counters of one shard, on a cache line of its own because the shard updates them often.
#[repr(align(64))]
#[derive(Debug, Default)]
struct ShardLoad {
    started: AtomicU64,
    uncontended: OpCounter,
    contended: OpCounter,
    latency: LatencyWindows,
}

#[derive(Debug, Default)]
struct OpCounter {
    operations: AtomicU64,
    nanos: AtomicU64,
}

/// Number of finished operations and their total time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OpSum {
    pub(super) operations: u64,
    pub(super) nanos: u64,
}

/// Counters of all shards at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OpTotals {
    /// Operations started.
    pub(super) started: u64,
    /// Finished operations that did not overlap a background chunk.
    pub(super) uncontended: OpSum,
    /// Finished operations that overlapped a background chunk.
    pub(super) contended: OpSum,
}

/// A client operation in progress, until dropped.
pub(crate) struct ClientOp<'a> {
    clients: &'a ClientLoad,
    shard_load: &'a ShardLoad,
    at: Instant,
    /// Number of chunks started before the operation; `None` if a chunk was running.
    chunks: Option<u64>,
}

impl ClientLoad {
    pub(super) fn new(shards: usize) -> Self {
        Self { shards: (0..shards).map(|_| ShardLoad::default()).collect(), ..Self::default() }
    }

    /// Tracks a client operation in this shard; `None` if no background job runs.
    pub(crate) fn begin(&self, shard: usize) -> Option<ClientOp<'_>> {
        if self.watchers.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.begin_at(shard, Reactor::try_current()?.now())
    }

    /// Like [`ClientLoad::begin`], at time `at`.
    pub(super) fn begin_at(&self, shard: usize, at: Instant) -> Option<ClientOp<'_>> {
        let shard_load = self.shards.get(shard)?;
        add(&shard_load.started, 1);
        let is_quiet = self.running.load(Ordering::Relaxed) == 0;
        let chunks = is_quiet.then(|| self.chunks.load(Ordering::Relaxed));
        Some(ClientOp { clients: self, shard_load, at, chunks })
    }

    /// Registers or unregisters a shard that runs background jobs.
    pub(super) fn watch(&self, watches: bool) {
        if watches {
            self.watchers.fetch_add(1, Ordering::Relaxed);
        } else {
            self.watchers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Number of shards with a running background job.
    pub(super) fn watchers(&self) -> u32 {
        self.watchers.load(Ordering::Relaxed)
    }

    pub(super) fn totals(&self) -> OpTotals {
        self.shards.iter().fold(OpTotals::default(), |totals, shard_load| OpTotals {
            started: totals.started + shard_load.started.load(Ordering::Relaxed),
            uncontended: shard_load.uncontended.added_to(totals.uncontended),
            contended: shard_load.contended.added_to(totals.contended),
        })
    }

    /// Recent latency of operations during background jobs; `None` if there were none.
    pub(super) fn recent_latency(&self, now: Instant) -> Option<RecentLatency> {
        let mut counts = LatencyHistogram::default();
        self.shards.iter().for_each(|shard_load| shard_load.latency.add_to(&mut counts, now));
        counts.summary()
    }

    /// Counts the start of a background chunk.
    pub(super) fn chunk_started(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.chunks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a background chunk.
    pub(super) fn chunk_finished(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpTotals {
    /// Number of operations in progress.
    pub(super) fn in_flight(&self) -> u64 {
        self.started.saturating_sub(self.uncontended.operations + self.contended.operations)
    }
}

impl OpSum {
    /// Mean latency, in nanoseconds.
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

impl ClientOp<'_> {
    /// Records the end of the operation.
    pub(super) fn end_at(&self, now: Instant) {
        let uncontended = self.chunks == Some(self.clients.chunks.load(Ordering::Relaxed));
        let timed = if uncontended { &self.shard_load.uncontended } else { &self.shard_load.contended };
        let took = clamped(now.since(self.at).as_nanos());
        add(&timed.nanos, took);
        add(&timed.operations, 1);
        self.shard_load.latency.count(now, took);
    }
}

impl Drop for ClientOp<'_> {
    fn drop(&mut self) {
        // Operations dropped outside a reactor count with a latency of zero.
        self.end_at(Reactor::try_current().map_or(self.at, |reactor| reactor.now()));
    }
}

/// Adds to a counter that only this thread writes.
fn add(count: &AtomicU64, more: u64) {
    count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
