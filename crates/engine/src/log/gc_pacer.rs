//! Users and the cleaner, kept in step: the fuller the pool, the more blocks the cleaner moves for each that users write.
//!
//! A segment of which the share `u` lives costs `u / (1 - u)` moved blocks for each block that it gains: that is what each user block
//! wait_for_debt_or_urgency, times `(1 - x) / x`, where `x` is how much is free as a share of what is wanted free ([`Space::high_water`]). So free space settles at half of
//! that whatever cleaning costs, and writers slow down gently on the way there instead of running into a wall. Who writes while
//! the cleaner is behind by more than [`DEBT_MAX`] waits for it.
//!
//! Must not know: segments, what is moved.

use std::cell::Cell;
use std::sync::Arc;

use reactor::{Notify, WaitList};

use super::request::{PerClass, WriteClass};
use crate::segments::CHUNK_BLOCKS;
use crate::space::Space;

/// Blocks that the cleaner may be behind before writers wait for it.
const DEBT_MAX: f32 = 256.0;
/// Blocks that it may be ahead: a chunk is moved as soon as a part of it is owed, and the next one only when that is paid for. What was moved for
/// somebody who waited for space is not counted further.
const CREDIT_MAX: f32 = 2.0 * CHUNK_BLOCKS as f32;
/// How many times what a block costs users owe at most: with less space they wait for that.
const BOOST_MAX: f32 = 8.0;
/// Live share up to which segments are cleaned while as much is free as it settles at, and while nothing is.
const LIVE_SHARE_BALANCED: f32 = 0.85;
const LIVE_SHARE_MAX: f32 = 0.97;
/// Live share up to which segments are cleaned when somebody waits for space.
const LIVE_SHARE_URGENT: f32 = 0.95;
/// The same when the last segments are being used: what does not gain much is not touched.
const LIVE_SHARE_SCARCE: f32 = 0.5;

/// How often somebody waits for a checkpoint or the cleaner in vain before he is told that there is no space.
pub(super) const ATTEMPTS_MAX: u32 = 64;

/// How often segments are cleaned for repair without its finding space.
const REPAIR_ATTEMPTS_MAX: u32 = 16;

/// See the module.
pub(crate) struct GcPacer {
    pub(crate) space: Arc<Space>,
    /// Blocks that the cleaner has still to move for what users wrote; less than none if it is ahead.
    debt: Cell<f32>,
    /// Blocks to move for each block that the segment gains which is being cleaned.
    cost_per_block: Cell<f32>,
    /// There is something to clean. Without it there is no debt either.
    cleaning: Cell<bool>,
    /// Free segments when there was last nothing to clean: with fewer it is worth another look.
    idle_free_segments: Cell<u32>,
    /// Who waits for space: how often since it last wrote a record.
    attempts: Cell<PerClass<u32>>,
    /// BackgroundLimiter waits for space.
    repair_waiting: Cell<bool>,
    /// How often it has found none since it last had less to do than ever before, and how little that was.
    repair_attempts: Cell<u32>,
    repair_min_left: Cell<u64>,
    /// What lived when nothing was cleaned for it any more.
    repair_give_up_live: Cell<u64>,
    /// Another shard waits for space, and whether the last one that did got some.
    helping: Cell<bool>,
    help_gained: Cell<bool>,
    work: Notify,
    debt_changed: WaitList,
    help_done: WaitList,
}

impl GcPacer {
    pub(super) fn new(space: Arc<Space>) -> Self {
        Self {
            space,
            debt: Cell::new(0.0),
            cost_per_block: Cell::new(1.0),
            cleaning: Cell::new(false),
            idle_free_segments: Cell::new(u32::MAX),
            attempts: Cell::default(),
            repair_waiting: Cell::default(),
            repair_attempts: Cell::default(),
            repair_min_left: Cell::new(u64::MAX),
            repair_give_up_live: Cell::default(),
            helping: Cell::new(false),
            help_gained: Cell::new(false),
            work: Notify::default(),
            debt_changed: WaitList::default(),
            help_done: WaitList::default(),
        }
    }

    /// True if writers need not wait for the cleaner.
    pub(super) fn may_write(&self) -> bool {
        self.debt.get() <= DEBT_MAX
    }

    /// Users wrote `blocks`; `pending_free` segments come with the next checkpoint.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn on_user_write(&self, blocks: u64, pending_free: usize) {
        let pending_free = u32::try_from(pending_free).unwrap_or(u32::MAX);
        let free_ratio = self.space.free_ratio(pending_free);
        if free_ratio >= 1.0 {
            return;
        }
        if self.cleaning.get() {
            let boost = ((1.0 - free_ratio) / free_ratio).min(BOOST_MAX);
            self.debt.set(self.debt.get() + blocks as f32 * boost * self.cost_per_block.get());
            self.debt_changed.wake_all();
        } else if self.space.free_for_users() + pending_free < self.idle_free_segments.get() {
            self.work.notify();
        }
    }

    /// True if so little is free that what is on its way should be fetched with a checkpoint.
    pub(super) fn wants_checkpoint(&self, pending_free: usize) -> bool {
        pending_free > 0 && self.space.free_for_users() <= self.space.high_water() / 8
    }

    /// The cleaner's next turn: ends when there may be something to do.
    pub(crate) async fn wait_for_work(&self) {
        self.work.notified().await;
    }

    /// The live share up to which a segment is worth cleaning; `None` if none needs to be.
    pub(crate) fn max_live_share(&self, pending_free: usize) -> Option<f32> {
        let pending_free = u32::try_from(pending_free).unwrap_or(u32::MAX);
        let free_ratio = self.space.free_ratio(pending_free);
        let limit = if self.space.is_low() {
            LIVE_SHARE_SCARCE
        } else if self.is_urgent() {
            LIVE_SHARE_URGENT
        } else if free_ratio > 0.5 {
            LIVE_SHARE_BALANCED * 2.0 * (1.0 - free_ratio)
        } else {
            LIVE_SHARE_MAX - (LIVE_SHARE_MAX - LIVE_SHARE_BALANCED) * 2.0 * free_ratio
        };
        self.cleaning.set(limit > 0.0);
        (limit > 0.0).then_some(limit)
    }

    /// A segment is being cleaned of which this share lives.
    pub(crate) fn set_victim_share(&self, share: f32) {
        let share = share.clamp(0.0, LIVE_SHARE_MAX);
        self.cost_per_block.set(share / (1.0 - share));
    }

    /// Waits until the cleaner wait_for_debt_or_urgency users something, or somebody waits for space. `stop` ends the wait too.
    pub(crate) async fn wait_for_debt_or_urgency(&self, stop: impl Fn() -> bool) {
        self.debt_changed.until(|| (self.debt.get() > 0.0 || self.is_urgent() || stop()).then_some(())).await;
    }

    /// The cleaner has moved, or begun to move, `blocks`.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn on_moved(&self, blocks: usize) {
        self.debt.set((self.debt.get() - blocks as f32).max(-CREDIT_MAX));
    }

    /// BackgroundLimiter found no space for the `left` blocks that are missing: it is cleaned for, but not for ever. What cleaning gains may all go to
    /// headers and checkpoints, in a pool whose drives that are left are too small, or to segments that miss a column themselves, which
    /// repair completes with what was gained. So only having less to do than ever before counts as progress; without that it is tried again
    /// when a good deal has been deleted.
    pub(crate) fn repair_needs_space(&self, left: u64) {
        let progressed = left < self.repair_min_left.replace(left.min(self.repair_min_left.get()));
        let attempts = if progressed { 1 } else { self.repair_attempts.get() + 1 };
        let live = self.space.live();
        if attempts > REPAIR_ATTEMPTS_MAX
            && live + self.space.segment_payload() > self.repair_give_up_live.get()
        {
            return;
        }
        self.repair_give_up_live.set(live);
        self.repair_attempts.set(if attempts > REPAIR_ATTEMPTS_MAX { 1 } else { attempts });
        self.repair_waiting.set(true);
        self.wake();
    }

    /// BackgroundLimiter found space.
    pub(crate) fn repair_got_space(&self) {
        self.repair_waiting.set(false);
    }

    /// BackgroundLimiter needs no space, or begins with something else.
    pub(crate) fn reset_repair_state(&self) {
        self.repair_waiting.set(false);
        self.repair_attempts.set(0);
        self.repair_min_left.set(u64::MAX);
    }

    /// True while segments are cleaned for repair.
    pub(super) fn is_cleaning_for_repair(&self) -> bool {
        self.repair_waiting.get() && self.repair_attempts.get() < REPAIR_ATTEMPTS_MAX
    }

    /// Another shard waits for space: segments are cleaned for it.
    pub(crate) fn start_helping(&self) {
        self.helping.set(true);
        self.wake();
    }

    /// Waits until something was gained for another shard, or nothing can be. `stop` ends the wait too.
    pub(crate) async fn wait_for_help(&self, stop: impl Fn() -> bool) -> bool {
        self.help_done.until(|| (!self.helping.get() || stop()).then_some(())).await;
        self.help_gained.get()
    }

    /// True while segments are cleaned for another shard, or for repair.
    pub(super) fn is_cleaning_for_others(&self) -> bool {
        self.helping.get() || self.is_cleaning_for_repair()
    }

    /// The cleaner has done what it could.
    pub(super) fn cleaning_ended(&self, gained: bool) {
        if self.helping.replace(false) {
            self.help_gained.set(gained);
            self.help_done.wake_all();
        }
    }

    /// Who waits for others to be done looks whether the shard stops.
    pub(super) fn stop(&self) {
        self.wake();
        self.help_done.wake_all();
    }

    /// Somebody waits for space.
    fn is_urgent(&self) -> bool {
        self.is_cleaning_for_others() || self.attempts.get().iter().any(|attempts| *attempts > 0)
    }

    /// A write_class has written a record, or everything in it was refused: it waits for nothing.
    pub(super) fn reset_attempts(&self, write_class: WriteClass) {
        let mut attempts = self.attempts.get();
        *attempts.of_mut(write_class) = 0;
        self.attempts.set(attempts);
    }

    /// Counts that a write_class found no space; gives which time in a row it is.
    pub(super) fn count_failed_attempt(&self, write_class: WriteClass) -> u32 {
        let mut attempts = self.attempts.get();
        let count = attempts.of_mut(write_class);
        *count += 1;
        let count = *count;
        self.attempts.set(attempts);
        count
    }

    /// Has the cleaner look again.
    pub(crate) fn wake(&self) {
        self.idle_free_segments.set(u32::MAX);
        self.work.notify();
        self.debt_changed.wake_all();
    }

    /// There is nothing worth cleaning: nobody waits for it.
    pub(crate) fn set_idle(&self, pending_free: usize) {
        self.debt.set(0.0);
        self.cleaning.set(false);
        self.idle_free_segments
            .set(self.space.free_for_users() + u32::try_from(pending_free).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
#[path = "gc_pacer_tests.rs"]
mod tests;
