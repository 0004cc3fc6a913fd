//! Budget of drive time of one shard's background jobs, which yield to client I/O.
//!
//! Without client I/O, chunks run in parallel and at full size. With client I/O, one chunk of one
//! job runs at a time, with the chunk size and pauses set by [`BackgroundRate`]: all jobs of all
//! shards together keep the guaranteed share of drive time, and no more than they would have alone.
//!
//! Always true: a started chunk counts until it is ended. Must not know: the jobs, and their rate
//! limits.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use reactor::{Instant, WaitList};

use super::background_rate::BackgroundRate;
use super::client_load::{ClientLoad, ClientOp};

/// Clients count as active for this long after their last operation.
const ACTIVE_FOR: Duration = Duration::from_millis(500);
/// Maximum length of one wait, so that changes are noticed soon.
pub(super) const REST_MAX: Duration = Duration::from_millis(500);

/// Budget of one shard.
#[derive(Default)]
pub(crate) struct BackgroundBudget {
    /// Client I/O on the same drives.
    clients: Arc<ClientLoad>,
    pacing: BackgroundRate,
    /// Number of running jobs, and of their running chunks.
    jobs: Cell<u32>,
    chunks: Cell<u32>,
    rest_until: Cell<Instant>,
    /// Signalled when a chunk ends.
    changed: WaitList,
    /// Number of client operations started at the last check, and time of the last activity.
    activity: Cell<(u64, Option<Instant>)>,
}

/// Condition that the next chunk has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitReason {
    Nothing,
    Until(Instant),
    /// The end of another chunk.
    OtherChunk,
}

impl BackgroundBudget {
    pub(super) fn new(clients: Arc<ClientLoad>) -> Self {
        Self { clients, ..Self::default() }
    }

    /// Tracks a client's read or write in this shard until the result is dropped; `None` while no
    /// background job runs.
    pub(crate) fn track_client_op(&self, shard: usize) -> Option<ClientOp<'_>> {
        self.clients.begin(shard)
    }

    /// Notes that a job starts at time `now`. The first one restarts at the minimum rate.
    pub(super) fn begin_job(&self, now: Instant) {
        self.jobs.set(self.jobs.get() + 1);
        if self.jobs.get() > 1 {
            return;
        }
        self.clients.watch(true);
        let totals = self.clients.totals();
        self.pacing.begin(totals, now);
        self.rest_until.set(now);
        // Operations are counted only while a job runs; active clients are detected at the next
        // check.
        self.activity.set((totals.started, None));
    }

    pub(super) fn end_job(&self) {
        assert!(self.jobs.get() > 0, "a background job ends once");
        self.jobs.set(self.jobs.get() - 1);
        if self.jobs.get() == 0 {
            self.clients.watch(false);
        }
    }

    pub(super) fn wait(&self, now: Instant) -> WaitReason {
        match self.clients_active(now) {
            true if self.chunks.get() > 0 => WaitReason::OtherChunk,
            true if self.rest_until.get() > now => WaitReason::Until(self.rest_until.get()),
            _ => WaitReason::Nothing,
        }
    }

    /// Waits until no chunk runs.
    pub(super) async fn chunks_ended(&self) {
        self.changed.until(|| (self.chunks.get() == 0).then_some(())).await;
    }

    /// Returns true if clients are active.
    fn clients_active(&self, now: Instant) -> bool {
        let (totals, (started, at)) = (self.clients.totals(), self.activity.get());
        let at = if totals.started != started || totals.in_flight() > 0 { Some(now) } else { at };
        self.activity.set((totals.started, at));
        at.is_some_and(|at| now.since(at) <= ACTIVE_FOR)
    }

    pub(super) fn begin_chunk(&self) {
        self.chunks.set(self.chunks.get() + 1);
        self.clients.chunk_started();
    }

    /// Ends a chunk that took `took`.
    pub(super) fn end_chunk(&self, took: Duration, now: Instant) {
        assert!(self.chunks.get() > 0, "a chunk ends once");
        self.chunks.set(self.chunks.get() - 1);
        self.clients.chunk_finished();
        if self.clients_active(now) {
            self.pacing.adjust(self.clients.totals(), now);
            let rest = self.pacing.rest(took, self.clients.watchers(), now);
            self.rest_until.set(now + rest.min(REST_MAX));
        }
        self.changed.wake_all();
    }

    /// Number of bytes of a column to process in a chunk that starts now, up to `most`.
    pub(super) fn chunk_bytes(&self, most: usize, now: Instant) -> usize {
        if self.clients_active(now) { most.min(self.pacing.chunk_bytes()) } else { most }
    }
}
