//! Throttle of one shard's background job: measures its rate, and keeps it within the limit of the
//! user and within the shard's [`BackgroundBudget`].
//!
//! Always true: a started chunk counts until its [`BackgroundPermit`] is dropped. Must not know:
//! the kind of work.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Instant, Reactor};

use super::BackgroundLimiter;
use super::budget::{BackgroundBudget, REST_MAX, WaitReason};

/// Interval over which the reported rate is measured.
const WINDOW: Duration = Duration::from_secs(5);

/// Throttle state of one job in one shard.
#[derive(Default)]
pub(crate) struct Throttle {
    budget: Rc<BackgroundBudget>,
    /// Earliest start of the next chunk under the rate limit, and the limit used to compute it.
    due: Cell<(Instant, u64)>,
    /// Start of the measuring interval, and bytes processed in it.
    window: Cell<(Instant, u64)>,
    rate: Cell<u64>,
}

/// Permission for one chunk, until dropped.
pub(crate) struct BackgroundPermit<'a> {
    throttle: &'a Throttle,
    limits: &'a BackgroundLimiter,
    started: Instant,
    /// Number of bytes processed, and end time.
    finished: Cell<Option<(u64, Instant)>>,
}

impl Throttle {
    pub(crate) fn new(budget: Rc<BackgroundBudget>) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Starts the job at time `now`, until [`Throttle::end`].
    pub(crate) fn begin(&self, limits: &BackgroundLimiter, now: Instant) {
        limits.set_working(true);
        self.budget.begin_job(now);
        self.due.set((now, 0));
        self.window.set((now, 0));
        self.rate.set(0);
    }

    /// Ends the job.
    pub(crate) fn end(&self, limits: &BackgroundLimiter) {
        limits.set_working(false);
        self.budget.end_job();
    }

    /// Waits until a chunk may start; `None` once `wanted` returns false.
    pub(crate) async fn acquire<'a>(
        &'a self,
        limits: &'a BackgroundLimiter,
        wanted: impl Fn() -> bool,
    ) -> Option<BackgroundPermit<'a>> {
        let reactor = Reactor::current();
        while wanted() {
            match self.wait(limits, reactor.now()) {
                WaitReason::Nothing => return Some(self.grant(limits, reactor.now())),
                WaitReason::Until(until) => reactor.sleep_until(until).await,
                WaitReason::OtherChunk => self.budget.chunks_ended().await,
            }
        }
        None
    }

    fn wait(&self, limits: &BackgroundLimiter, now: Instant) -> WaitReason {
        let (due, share) = self.due.get();
        if due > now && limits.rate_per_shard() == Some(share) {
            return WaitReason::Until(due.min(now + REST_MAX));
        }
        self.budget.wait(now)
    }

    fn grant<'a>(&'a self, limits: &'a BackgroundLimiter, now: Instant) -> BackgroundPermit<'a> {
        self.budget.begin_chunk();
        BackgroundPermit { throttle: self, limits, started: now, finished: Cell::default() }
    }

    fn release(&self, permit: &BackgroundPermit<'_>, bytes: u64, now: Instant) {
        self.count(bytes, now);
        if let Some(share) = permit.limits.rate_per_shard() {
            // An unused part of the limit is not carried over.
            let (due, _) = self.due.get();
            let takes = Duration::from_secs_f64(to_float(bytes) / to_float(share));
            self.due.set((due.max(permit.started) + takes, share));
        }
        self.budget.end_chunk(now.since(permit.started), now);
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
            // A preliminary rate, corrected at the end of the first interval.
            if self.rate.get() == 0 && length >= WINDOW / 10 {
                self.rate.set(to_whole(per_second));
            }
        }
    }

    /// Recent rate, in bytes per second.
    pub(crate) fn rate(&self) -> u64 {
        self.rate.get()
    }
}

impl BackgroundPermit<'_> {
    /// Number of bytes of a column to process in this chunk, up to `most`.
    pub(crate) fn chunk_bytes(&self, most: usize) -> usize {
        self.throttle.budget.chunk_bytes(most, self.started)
    }

    /// Ends the chunk, with the number of bytes processed.
    pub(crate) fn finish(self, bytes: u64) {
        self.finish_at(bytes, Reactor::current().now());
    }

    fn finish_at(self, bytes: u64, now: Instant) {
        self.finished.set(Some((bytes, now)));
    }
}

impl Drop for BackgroundPermit<'_> {
    fn drop(&mut self) {
        // A failed chunk counts no bytes.
        let ended = || Reactor::try_current().map_or(self.started, |reactor| reactor.now());
        let (bytes, now) = self.finished.get().unwrap_or_else(|| (0, ended()));
        self.throttle.release(self, bytes, now);
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
#[path = "throttle_tests.rs"]
mod tests;
