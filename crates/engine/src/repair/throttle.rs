//! Throttle of one shard's background job: measures its rate, and keeps it within the limit and
//! within the tolerated slowdown of client I/O.
//!
//! Without client I/O, chunks run in parallel and at full size. With client I/O, one chunk runs at
//! a time, with the chunk size and pauses set by [`BackgroundRate`].
//!
//! Always true: a started chunk counts until its [`BackgroundPermit`] is dropped. Must not know:
//! the kind of work.

use std::cell::Cell;
use std::time::Duration;

use reactor::{Instant, Reactor, WaitList};

use super::BackgroundLimiter;
use super::background_rate::BackgroundRate;

/// Clients count as active for this long after their last operation.
const ACTIVE_FOR: Duration = Duration::from_millis(500);
/// Maximum length of one wait, so that changes are noticed soon.
const REST_MAX: Duration = Duration::from_millis(500);
/// Interval over which the reported rate is measured.
const WINDOW: Duration = Duration::from_secs(5);

/// Throttle state of one job in one shard.
#[derive(Default)]
pub(crate) struct Throttle {
    pacing: BackgroundRate,
    /// Earliest start of the next chunk under the rate limit, and the limit used to compute it.
    due: Cell<(Instant, u64)>,
    rest_until: Cell<Instant>,
    running: Cell<u32>,
    /// Signalled when a chunk ends.
    changed: WaitList,
    /// Number of client operations started at the last check, and time of the last activity.
    activity: Cell<(u64, Option<Instant>)>,
    /// Start of the measuring interval, and bytes processed in it.
    window: Cell<(Instant, u64)>,
    rate: Cell<u64>,
}

/// Permission for one chunk, until dropped.
pub(crate) struct BackgroundPermit<'a> {
    throttle: &'a Throttle,
    repair: &'a BackgroundLimiter,
    started: Instant,
    /// Number of bytes processed, and end time.
    finished: Cell<Option<(u64, Instant)>>,
}

/// Condition that the next chunk has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitReason {
    Nothing,
    Until(Instant),
    /// The end of another chunk.
    OtherChunk,
}

impl Throttle {
    /// Resets the state when a job starts at time `now`.
    pub(crate) fn begin(&self, repair: &BackgroundLimiter, now: Instant) {
        let totals = repair.clients.totals();
        self.pacing.begin(totals, now);
        self.due.set((now, 0));
        self.rest_until.set(now);
        // Operations are counted only while a job runs; active clients are detected at the next
        // check.
        self.activity.set((totals.started, None));
        self.window.set((now, 0));
        self.rate.set(0);
    }

    /// Waits until a chunk may start; `None` once `wanted` returns false.
    pub(crate) async fn acquire<'a>(
        &'a self,
        repair: &'a BackgroundLimiter,
        wanted: impl Fn() -> bool,
    ) -> Option<BackgroundPermit<'a>> {
        let reactor = Reactor::current();
        while wanted() {
            match self.wait(repair, reactor.now()) {
                WaitReason::Nothing => return Some(self.grant(repair, reactor.now())),
                WaitReason::Until(until) => reactor.sleep_until(until).await,
                WaitReason::OtherChunk => {
                    let is_over = || (self.running.get() == 0).then_some(());
                    self.changed.until(is_over).await;
                }
            }
        }
        None
    }

    fn wait(&self, repair: &BackgroundLimiter, now: Instant) -> WaitReason {
        let (due, share) = self.due.get();
        if due > now && repair.rate_per_shard() == Some(share) {
            return WaitReason::Until(due.min(now + REST_MAX));
        }
        match self.clients_active(repair, now) {
            true if self.running.get() > 0 => WaitReason::OtherChunk,
            true if self.rest_until.get() > now => WaitReason::Until(self.rest_until.get()),
            _ => WaitReason::Nothing,
        }
    }

    /// Returns true if clients are active.
    fn clients_active(&self, repair: &BackgroundLimiter, now: Instant) -> bool {
        let (totals, (started, at)) = (repair.clients.totals(), self.activity.get());
        let at = if totals.started != started || totals.in_flight() > 0 { Some(now) } else { at };
        self.activity.set((totals.started, at));
        at.is_some_and(|at| now.since(at) <= ACTIVE_FOR)
    }

    fn grant<'a>(&'a self, repair: &'a BackgroundLimiter, now: Instant) -> BackgroundPermit<'a> {
        self.running.set(self.running.get() + 1);
        repair.clients.chunk_started();
        BackgroundPermit { throttle: self, repair, started: now, finished: Cell::default() }
    }

    fn release(&self, permit: &BackgroundPermit<'_>, bytes: u64, now: Instant) {
        let repair = permit.repair;
        self.running.set(self.running.get() - 1);
        repair.clients.chunk_finished();
        self.count(bytes, now);
        if let Some(share) = repair.rate_per_shard() {
            // An unused part of the limit is not carried over.
            let (due, _) = self.due.get();
            let takes = Duration::from_secs_f64(to_float(bytes) / to_float(share));
            self.due.set((due.max(permit.started) + takes, share));
        }
        if self.clients_active(repair, now) {
            self.pacing.adjust(repair.clients.totals(), now);
            let rest = self.pacing.rest(now.since(permit.started), repair.working(), now);
            self.rest_until.set(now + rest.min(REST_MAX));
        }
        self.changed.wake_all();
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
        if self.throttle.clients_active(self.repair, self.started) {
            most.min(self.throttle.pacing.chunk_bytes())
        } else {
            most
        }
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
