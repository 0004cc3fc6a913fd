//! One shard's work in the background on the drives: measured, and kept within its limit and to what users bear.
//!
//! While nobody uses the pool, as many and as large pieces go on as the worker has. While somebody does, one at a time, as large as the
//! effort says, and the rest that it says after each ([`BackgroundRate`]).
//!
//! Always true: pieces that were begun are counted until their [`BackgroundPermit`] is dropped. Must not know: what a piece is.

use std::cell::Cell;
use std::time::Duration;

use reactor::{Instant, Reactor, WaitList};

use super::BackgroundLimiter;
use super::background_rate::BackgroundRate;

/// Volumes count as being used for as long after they were.
const USED_FOR: Duration = Duration::from_millis(500);
/// It rests no longer than that at once, so that it soon sees that there is nothing to wait for any more.
const REST_MAX: Duration = Duration::from_millis(500);
/// How long the speed is measured before it is told.
const WINDOW: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Default)]
pub(crate) struct Throttle {
    pacing: BackgroundRate,
    /// When the next piece may begin, by the limit that it was reckoned with; and because users were left to themselves.
    due: Cell<(Instant, u64)>,
    rests: Cell<Instant>,
    under_way: Cell<u32>,
    /// A piece is over.
    changed: WaitList,
    /// Operations that users had begun when it was last looked, and when they were last seen to do something.
    used: Cell<(u64, Option<Instant>)>,
    /// Begin of the window, and bytes worked on in it.
    window: Cell<(Instant, u64)>,
    rate: Cell<u64>,
}

/// A piece under way. Dropped when it is over.
pub(crate) struct BackgroundPermit<'a> {
    throttle: &'a Throttle,
    repair: &'a BackgroundLimiter,
    begun: Instant,
    /// Bytes that were worked on, and until when.
    finished: Cell<Option<(u64, Instant)>>,
}

/// What a piece has to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    Until(Instant),
    /// The end of another one.
    Another,
}

impl Throttle {
    /// Work begins anew at `now`.
    pub(crate) fn begin(&self, repair: &BackgroundLimiter, now: Instant) {
        let done = repair.users.done();
        self.pacing.begin(done, now);
        self.due.set((now, 0));
        self.rests.set(now);
        // Whoever used the pool before nobody asked cannot be known; those who go on are seen soon.
        self.used.set((done.begun, None));
        self.window.set((now, 0));
        self.rate.set(0);
    }

    /// Waits until a piece may begin; `None` if that is not worth waiting for any more.
    pub(crate) async fn acquire<'a>(
        &'a self,
        repair: &'a BackgroundLimiter,
        goes_on: impl Fn() -> bool,
    ) -> Option<BackgroundPermit<'a>> {
        let reactor = Reactor::current();
        while goes_on() {
            match self.wait(repair, reactor.now()) {
                Wait::Nothing => return Some(self.enter(repair, reactor.now())),
                Wait::Until(until) => reactor.sleep_until(until).await,
                Wait::Another => {
                    let is_over = || (self.under_way.get() == 0).then_some(());
                    self.changed.until(is_over).await;
                }
            }
        }
        None
    }

    fn wait(&self, repair: &BackgroundLimiter, now: Instant) -> Wait {
        let (due, share) = self.due.get();
        if due > now && repair.share() == Some(share) {
            return Wait::Until(due.min(now + REST_MAX));
        }
        match self.is_used(repair, now) {
            true if self.under_way.get() > 0 => Wait::Another,
            true if self.rests.get() > now => Wait::Until(self.rests.get()),
            _ => Wait::Nothing,
        }
    }

    /// True while volumes are being used.
    fn is_used(&self, repair: &BackgroundLimiter, now: Instant) -> bool {
        let (done, (begun, at)) = (repair.users.done(), self.used.get());
        let at = if done.begun != begun || done.under_way() > 0 { Some(now) } else { at };
        self.used.set((done.begun, at));
        at.is_some_and(|at| now.since(at) <= USED_FOR)
    }

    fn enter<'a>(&'a self, repair: &'a BackgroundLimiter, now: Instant) -> BackgroundPermit<'a> {
        self.under_way.set(self.under_way.get() + 1);
        repair.users.piece_begins();
        BackgroundPermit { throttle: self, repair, begun: now, finished: Cell::default() }
    }

    fn leave(&self, turn: &BackgroundPermit<'_>, bytes: u64, now: Instant) {
        let repair = turn.repair;
        self.under_way.set(self.under_way.get() - 1);
        repair.users.piece_ends();
        self.count(bytes, now);
        if let Some(share) = repair.share() {
            // What was not used of the limit is not saved up.
            let (due, _) = self.due.get();
            let takes = Duration::from_secs_f64(to_float(bytes) / to_float(share));
            self.due.set((due.max(turn.begun) + takes, share));
        }
        if self.is_used(repair, now) {
            self.pacing.follow(repair.users.done(), now);
            let rest = self.pacing.rest(now.since(turn.begun), repair.working(), now);
            self.rests.set(now + rest.min(REST_MAX));
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

impl BackgroundPermit<'_> {
    /// Bytes of a column that the piece may have: no more than `most`.
    pub(crate) fn chunk_bytes(&self, most: usize) -> usize {
        if self.throttle.is_used(self.repair, self.begun) {
            most.min(self.throttle.pacing.chunk_bytes())
        } else {
            most
        }
    }

    /// It is over, and so many bytes were worked on.
    pub(crate) fn finish(self, bytes: u64) {
        self.finish_at(bytes, Reactor::current().now());
    }

    fn finish_at(self, bytes: u64, now: Instant) {
        self.finished.set(Some((bytes, now)));
    }
}

impl Drop for BackgroundPermit<'_> {
    fn drop(&mut self) {
        // What failed counts no bytes.
        let ended = || Reactor::try_current().map_or(self.begun, |reactor| reactor.now());
        let (bytes, now) = self.finished.get().unwrap_or_else(|| (0, ended()));
        self.throttle.leave(self, bytes, now);
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
