//! How much background work does while volumes are used: as much as users hardly notice.
//!
//! How long their operations take beside a piece of it is compared with how long they take by themselves. As long as that is borne, more is
//! done, shorter rests at first and then larger pieces; otherwise less. Rests are for users, and so that it is known what they take by themselves.
//!
//! Always true: never less than a quarter of the time (what it is guaranteed). Must not know: what a piece is, who the users are.

use std::cell::Cell;
use std::time::Duration;

use reactor::Instant;

use super::user_load::{OpSum, OpTotals};

/// Share of the time that is taken whatever users notice.
const SHARE_LEAST: f64 = 0.25;
/// Bytes of a column at once, at least and at most.
const PIECE_LEAST: usize = 64 << 10;
const PIECES_MOST: f64 = 16.0;
/// How many times as long as by themselves users' operations may take in the mean beside a piece, and how much longer nobody notices, in
/// nanoseconds: less than any drive that is not memory takes.
const BORNE: f64 = 2.0;
const UNNOTICED: f64 = 30_000.0;
/// Operations after which the effort follows what they took; fewer do after a while.
const FOLLOW_EVERY: u64 = 64;
const FOLLOW_AFTER: Duration = Duration::from_millis(100);
/// Operations by themselves that tell how long these take; fewer do after a while.
const LEARN_FROM: u64 = 8;
const GROW: f64 = 1.1;
const SHRINK: f64 = 0.7;
/// Rests from which is learned what operations take by themselves are so many times as long as these take, and there are so many times as long between
/// two of them.
const LEARN_FOR: f64 = 4.0;
const LEARN_EVERY: u32 = 8;

/// See the module.
pub(super) struct BackgroundRate {
    /// Share of the time up to one, larger pieces above.
    rate: Cell<f64>,
    /// What an operation takes by itself, in nanoseconds.
    by_itself: Cell<Option<f64>>,
    /// What one took lately beside a piece.
    beside: Cell<f64>,
    /// What users had done when the effort followed last, and when it did.
    followed: Cell<(OpSum, Instant)>,
    /// The same when it was last learned what they take by themselves.
    learned: Cell<(OpSum, Instant)>,
    /// When it is time to rest for that.
    learns: Cell<Instant>,
}

impl Default for BackgroundRate {
    fn default() -> Self {
        let start = Instant::from_nanos(0);
        Self {
            rate: Cell::new(SHARE_LEAST),
            by_itself: Cell::default(),
            beside: Cell::default(),
            followed: Cell::new((OpSum::default(), start)),
            learned: Cell::new((OpSum::default(), start)),
            learns: Cell::new(start),
        }
    }
}

impl BackgroundRate {
    /// Begins anew.
    pub(super) fn begin(&self, done: OpTotals, now: Instant) {
        self.rate.set(SHARE_LEAST);
        self.by_itself.set(None);
        self.followed.set((done.contended, now));
        self.learned.set((done.uncontended, now));
        self.learns.set(now);
    }

    /// Follows what users have `done` by now.
    pub(super) fn follow(&self, done: OpTotals, now: Instant) {
        let (before, when) = self.learned.get();
        let alone = done.uncontended - before;
        if let Some(mean) = alone.mean()
            && (alone.operations >= LEARN_FROM || now.since(when) >= FOLLOW_AFTER)
        {
            let known = self.by_itself.get().unwrap_or(mean);
            self.by_itself.set(Some(known + (mean - known) / 4.0));
            self.learned.set((done.uncontended, now));
        }
        let (before, when) = self.followed.get();
        let beside = done.contended - before;
        if beside.operations < FOLLOW_EVERY && now.since(when) < FOLLOW_AFTER {
            return;
        }
        self.followed.set((done.contended, now));
        let is_borne = match (beside.mean(), self.by_itself.get()) {
            // Nobody was there to notice anything.
            (None, _) => true,
            (Some(mean), known) => {
                self.beside.set(mean);
                let Some(known) = known else { return };
                mean <= (known * BORNE).max(known + UNNOTICED)
            }
        };
        let factor = if is_borne { GROW } else { SHRINK };
        self.rate.set((self.rate.get() * factor).clamp(SHARE_LEAST, PIECES_MOST));
    }

    /// Bytes of a column to be read or written at once.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn chunk_bytes(&self) -> usize {
        PIECE_LEAST * self.rate.get().clamp(1.0, PIECES_MOST) as usize
    }

    /// How long to leave the drives alone after a piece that took so long, if so many `workers` share them.
    pub(super) fn rest(&self, took: Duration, workers: u32, now: Instant) -> Duration {
        let share = self.rate.get().min(1.0) / f64::from(workers.max(1));
        let rest = took.mul_f64(1.0 / share - 1.0);
        if now < self.learns.get() {
            return rest;
        }
        let takes = self.by_itself.get().unwrap_or(0.0).max(self.beside.get());
        let learns = rest.max(Duration::from_secs_f64(takes * LEARN_FOR / 1e9));
        self.learns.set(now + learns * LEARN_EVERY);
        learns
    }
}

#[cfg(test)]
#[path = "background_rate_tests.rs"]
mod tests;
