//! Pacing of the cleaner against client writes: the fuller the pool, the more blocks the cleaner
//! must move for each block that clients write.
//!
//! Cleaning a segment with the live share `u` costs `u / (1 - u)` moved blocks per block gained.
//! Each client block adds that cost to the debt, times `(1 - x) / x`, where `x` is the free space
//! as a share of the target ([`Space::high_water`]). So free space settles at half of the target at
//! any cost of cleaning, and writers slow down gradually instead of stalling. Client writes wait
//! while the debt is above [`DEBT_MAX`].
//!
//! Must not know: segments, which data is moved.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use reactor::{Notify, WaitList};

use super::space_gate::SpaceGate;
use crate::invariant::narrow;
use crate::segments::CHUNK_BLOCKS;
use crate::space::Space;

/// Debt of the cleaner, in blocks, above which client writes wait.
const DEBT_MAX: f32 = 256.0;
/// Credit of the cleaner, in blocks: a chunk is moved as soon as a part of it is owed, and the next
/// one only when that is paid for. Blocks moved for an urgent request for space earn no credit
/// beyond this.
const CREDIT_MAX: f32 = 2.0 * CHUNK_BLOCKS as f32;
/// Maximum factor on the cost of a client block: with less free space, writes wait for space
/// instead.
const BOOST_MAX: f32 = 8.0;
/// Live share up to which segments are cleaned.
const LIVE_SHARE_MAX: f32 = 0.97;
/// Live share up to which segments are cleaned when a request waits for space.
const LIVE_SHARE_URGENT: f32 = 0.95;
/// Live share up to which segments are cleaned when the last free segments are in use: only large
/// gains are worth the space that moving takes.
const LIVE_SHARE_SCARCE: f32 = 0.5;

/// Number of times that segments are cleaned for repair without repair making progress.
const REPAIR_ATTEMPTS_MAX: u32 = 16;

/// Paces the cleaner, and throttles client writes.
pub(crate) struct GcPacer {
    pub(crate) space: Arc<Space>,
    /// Blocks that the cleaner still has to move for client writes; negative if it is ahead.
    debt: Cell<f32>,
    /// Blocks to move for each block gained, in the segment that is being cleaned.
    cost_per_block: Cell<f32>,
    /// There are segments to clean. Otherwise client writes add no debt.
    cleaning: Cell<bool>,
    /// Free segments when the cleaner last found nothing to do: with fewer, it looks again.
    idle_free_segments: Cell<u32>,
    /// Knows whether a request waits for space.
    space_gate: Rc<RefCell<SpaceGate>>,
    /// Repair waits for space.
    repair_waiting: Cell<bool>,
    /// Number of times that repair found no space since it last made progress, and the smallest
    /// number of blocks that it had left.
    repair_attempts: Cell<u32>,
    repair_min_left: Cell<u64>,
    /// Live blocks when cleaning for repair was given up.
    repair_give_up_live: Cell<u64>,
    /// Another shard waits for space; and whether the last such request gained some.
    helping: Cell<bool>,
    help_gained: Cell<bool>,
    work: Notify,
    debt_changed: WaitList,
    help_done: WaitList,
}

impl GcPacer {
    pub(super) fn new(space: Arc<Space>, space_gate: Rc<RefCell<SpaceGate>>) -> Self {
        Self {
            space,
            debt: Cell::new(0.0),
            cost_per_block: Cell::new(1.0),
            cleaning: Cell::new(false),
            idle_free_segments: Cell::new(u32::MAX),
            space_gate,
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

    /// Returns true if client writes need not wait for the cleaner.
    pub(super) fn may_write(&self) -> bool {
        self.debt.get() <= DEBT_MAX
    }

    /// Accounts for `blocks` blocks that clients wrote; the next checkpoint frees `pending_free`
    /// segments.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn on_user_write(&self, blocks: u64, pending_free: usize) {
        let pending_free: u32 = narrow(pending_free, "C5");
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

    /// Waits until there may be something to clean.
    pub(crate) async fn wait_for_work(&self) {
        self.work.notified().await;
    }

    /// Returns the live share up to which segments should be cleaned; `None` if no cleaning is
    /// needed.
    pub(crate) fn max_live_share(&self, pending_free: usize) -> Option<f32> {
        let pending_free: u32 = narrow(pending_free, "C5");
        let limit = if self.space.is_low() {
            Some(LIVE_SHARE_SCARCE)
        } else if self.is_urgent() {
            Some(LIVE_SHARE_URGENT)
        } else {
            (self.space.free_ratio(pending_free) < 1.0).then_some(LIVE_SHARE_MAX)
        };
        self.cleaning.set(limit.is_some());
        limit
    }

    /// Sets the live share of the segment that is being cleaned.
    pub(crate) fn set_victim_share(&self, share: f32) {
        assert!(share >= 0.0, "S1: a segment has a negative share of live blocks");
        let share = share.clamp(0.0, LIVE_SHARE_MAX);
        self.cost_per_block.set(share / (1.0 - share));
    }

    /// Waits until there is debt, or a request waits for space. `stop` ends the wait too.
    pub(crate) async fn wait_for_debt_or_urgency(&self, stop: impl Fn() -> bool) {
        self.debt_changed.until(|| (self.debt.get() > 0.0 || self.is_urgent() || stop()).then_some(())).await;
    }

    /// Accounts for `blocks` blocks that the cleaner has begun to move.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn on_moved(&self, blocks: usize) {
        self.debt.set((self.debt.get() - blocks as f32).max(-CREDIT_MAX));
        assert!(self.debt.get().is_finite(), "the debt of the cleaner is a number");
    }

    /// Requests cleaning because repair found no space for the `left` missing blocks. The number of
    /// attempts is bounded: headers and checkpoints may use up all that cleaning gains, and so may
    /// segments that miss a column themselves. Only a new minimum of `left` counts as progress;
    /// without progress, cleaning is tried again after about a segment of live data was deleted.
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

    /// Ends the wait of repair for space.
    pub(crate) fn repair_got_space(&self) {
        self.repair_waiting.set(false);
    }

    /// Resets the state of repair: it needs no space, or starts over.
    pub(crate) fn reset_repair_state(&self) {
        self.repair_waiting.set(false);
        self.repair_attempts.set(0);
        self.repair_min_left.set(u64::MAX);
    }

    /// Returns true while segments are cleaned for repair.
    pub(super) fn is_cleaning_for_repair(&self) -> bool {
        self.repair_waiting.get() && self.repair_attempts.get() < REPAIR_ATTEMPTS_MAX
    }

    /// Starts to clean for another shard, which waits for space.
    pub(crate) fn start_helping(&self) {
        self.helping.set(true);
        self.wake();
    }

    /// Waits until cleaning for another shard has ended; returns true if it gained space. `stop`
    /// ends the wait too.
    pub(crate) async fn wait_for_help(&self, stop: impl Fn() -> bool) -> bool {
        self.help_done.until(|| (!self.helping.get() || stop()).then_some(())).await;
        self.help_gained.get()
    }

    /// Returns true while segments are cleaned for another shard, or for repair.
    pub(super) fn is_cleaning_for_others(&self) -> bool {
        self.helping.get() || self.is_cleaning_for_repair()
    }

    /// Notes that the cleaner has gained about a segment, or, if `gained` is false, that it cannot
    /// gain any.
    pub(super) fn cleaning_ended(&self, gained: bool) {
        if self.helping.replace(false) {
            self.help_gained.set(gained);
            self.help_done.wake_all();
        }
    }

    /// Wakes all waits so that they notice that the shard stops.
    pub(super) fn stop(&self) {
        self.wake();
        self.help_done.wake_all();
    }

    /// Returns true if a request waits for space.
    fn is_urgent(&self) -> bool {
        self.is_cleaning_for_others() || self.space_gate.borrow().is_urgent()
    }

    /// Makes the cleaner look for work again.
    pub(crate) fn wake(&self) {
        self.idle_free_segments.set(u32::MAX);
        self.work.notify();
        self.debt_changed.wake_all();
    }

    /// Notes that no segment is worth cleaning: clears the debt.
    pub(crate) fn set_idle(&self, pending_free: usize) {
        self.debt.set(0.0);
        self.cleaning.set(false);
        self.idle_free_segments.set(self.space.free_for_users() + narrow::<u32, _>(pending_free, "C5"));
    }
}

#[cfg(test)]
#[path = "gc_pacer_tests.rs"]
mod tests;
