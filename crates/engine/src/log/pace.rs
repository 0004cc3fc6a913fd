//! Users and the cleaner, kept in step: the fuller the pool, the more blocks the cleaner moves for each that users write.
//!
//! A segment of which the share `u` lives costs `u / (1 - u)` moved blocks for each block that it gains: that is what each user block
//! owes, times `(1 - x) / x`, where `x` is how much is free as a share of what is wanted free ([`Space::high_water`]). So free space settles at half of
//! that whatever cleaning costs, and writers slow down gently on the way there instead of running into a wall. Who writes while
//! the cleaner is behind by more than [`DEBT_MAX`] waits for it.
//!
//! Must not know: segments, what is moved.

use std::cell::Cell;
use std::sync::Arc;

use reactor::{Notify, WaitList};

use super::request::{PerStream, Stream};
use crate::segments::CHUNK_BLOCKS;
use crate::space::Space;

/// Blocks that the cleaner may be behind before writers wait for it.
const DEBT_MAX: f32 = 256.0;
/// Blocks that it may be ahead: a chunk is moved as soon as a part of it is owed, and the next one only when that is paid for. What was moved for
/// somebody who waited for space is not counted further.
const CREDIT_MAX: f32 = 2.0 * CHUNK_BLOCKS as f32;
/// How many times what a block costs users owe at most: with less space they wait for that.
const HASTE_MAX: f32 = 8.0;
/// Live share up to which segments are cleaned while as much is free as it settles at, and while nothing is.
const WORTH: f32 = 0.85;
const WORTH_MAX: f32 = 0.97;
/// Live share up to which segments are cleaned when somebody waits for space.
const URGENT_WORTH: f32 = 0.95;
/// The same when the last segments are being used: what does not gain much is not touched.
const SHORT_WORTH: f32 = 0.5;

/// How often somebody waits for a checkpoint or the cleaner in vain before he is told that there is no space.
pub(super) const TRIES_MAX: u32 = 64;

/// How often segments are cleaned for repair without its finding space.
const REPAIR_TRIES_MAX: u32 = 16;

/// See the module.
pub(crate) struct Pace {
    pub(crate) space: Arc<Space>,
    /// Blocks that the cleaner has still to move for what users wrote; less than none if it is ahead.
    debt: Cell<f32>,
    /// Blocks to move for each block that the segment gains which is being cleaned.
    price: Cell<f32>,
    /// There is something to clean. Without it there is no debt either.
    cleaning: Cell<bool>,
    /// Free segments when there was last nothing to clean: with fewer it is worth another look.
    rested_at: Cell<u32>,
    /// Who waits for space: how often since it last wrote a record.
    tries: Cell<PerStream<u32>>,
    /// Repair waits for space.
    repair_waits: Cell<bool>,
    /// How often it has found none since it last had less to do than ever before, and how little that was.
    repair_tries: Cell<u32>,
    repair_least: Cell<u64>,
    /// What lived when nothing was cleaned for it any more.
    repair_gave_up: Cell<u64>,
    /// Another shard waits for space, and whether the last one that did got some.
    helping: Cell<bool>,
    help_gained: Cell<bool>,
    work: Notify,
    owed: WaitList,
    helped: WaitList,
}

impl Pace {
    pub(super) fn new(space: Arc<Space>) -> Self {
        Self {
            space,
            debt: Cell::new(0.0),
            price: Cell::new(1.0),
            cleaning: Cell::new(false),
            rested_at: Cell::new(u32::MAX),
            tries: Cell::default(),
            repair_waits: Cell::default(),
            repair_tries: Cell::default(),
            repair_least: Cell::new(u64::MAX),
            repair_gave_up: Cell::default(),
            helping: Cell::new(false),
            help_gained: Cell::new(false),
            work: Notify::default(),
            owed: WaitList::default(),
            helped: WaitList::default(),
        }
    }

    /// True if writers need not wait for the cleaner.
    pub(super) fn may_write(&self) -> bool {
        self.debt.get() <= DEBT_MAX
    }

    /// Users wrote `blocks`; `coming` segments come with the next checkpoint.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn user_wrote(&self, blocks: u64, coming: usize) {
        let coming = u32::try_from(coming).unwrap_or(u32::MAX);
        let plenty = self.space.free_ratio(coming);
        if plenty >= 1.0 {
            return;
        }
        if self.cleaning.get() {
            let haste = ((1.0 - plenty) / plenty).min(HASTE_MAX);
            self.debt.set(self.debt.get() + blocks as f32 * haste * self.price.get());
            self.owed.wake_all();
        } else if self.space.free_for_users() + coming < self.rested_at.get() {
            self.work.notify();
        }
    }

    /// True if so little is free that what is on its way should be fetched with a checkpoint.
    pub(super) fn wants_checkpoint(&self, coming: usize) -> bool {
        coming > 0 && self.space.free_for_users() <= self.space.high_water() / 8
    }

    /// The cleaner's next turn: ends when there may be something to do.
    pub(crate) async fn turn(&self) {
        self.work.notified().await;
    }

    /// The live share up to which a segment is worth cleaning; `None` if none needs to be.
    pub(crate) fn worth(&self, coming: usize) -> Option<f32> {
        let coming = u32::try_from(coming).unwrap_or(u32::MAX);
        let plenty = self.space.free_ratio(coming);
        let worth = if self.space.is_low() {
            SHORT_WORTH
        } else if self.is_urgent() {
            URGENT_WORTH
        } else if plenty > 0.5 {
            WORTH * 2.0 * (1.0 - plenty)
        } else {
            WORTH_MAX - (WORTH_MAX - WORTH) * 2.0 * plenty
        };
        self.cleaning.set(worth > 0.0);
        (worth > 0.0).then_some(worth)
    }

    /// A segment is being cleaned of which this share lives.
    pub(crate) fn cleans(&self, share: f32) {
        let share = share.clamp(0.0, WORTH_MAX);
        self.price.set(share / (1.0 - share));
    }

    /// Waits until the cleaner owes users something, or somebody waits for space. `stop` ends the wait too.
    pub(crate) async fn owes(&self, stop: impl Fn() -> bool) {
        self.owed.until(|| (self.debt.get() > 0.0 || self.is_urgent() || stop()).then_some(())).await;
    }

    /// The cleaner has moved, or begun to move, `blocks`.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn moved(&self, blocks: usize) {
        self.debt.set((self.debt.get() - blocks as f32).max(-CREDIT_MAX));
    }

    /// Repair found no space for the `left` blocks that are missing: it is cleaned for, but not for ever. What cleaning gains may all go to
    /// headers and checkpoints, in a pool whose drives that are left are too small, or to segments that miss a column themselves, which
    /// repair completes with what was gained. So only having less to do than ever before counts as progress; without that it is tried again
    /// when a good deal has been deleted.
    pub(crate) fn repair_found_none(&self, left: u64) {
        let progressed = left < self.repair_least.replace(left.min(self.repair_least.get()));
        let tries = if progressed { 1 } else { self.repair_tries.get() + 1 };
        let live = self.space.live();
        if tries > REPAIR_TRIES_MAX && live + self.space.segment_payload() > self.repair_gave_up.get() {
            return;
        }
        self.repair_gave_up.set(live);
        self.repair_tries.set(if tries > REPAIR_TRIES_MAX { 1 } else { tries });
        self.repair_waits.set(true);
        self.wake();
    }

    /// Repair found space.
    pub(crate) fn repair_found_some(&self) {
        self.repair_waits.set(false);
    }

    /// Repair needs no space, or begins with something else.
    pub(crate) fn repair_served(&self) {
        self.repair_waits.set(false);
        self.repair_tries.set(0);
        self.repair_least.set(u64::MAX);
    }

    /// True while segments are cleaned for repair.
    pub(super) fn cleans_for_repair(&self) -> bool {
        self.repair_waits.get() && self.repair_tries.get() < REPAIR_TRIES_MAX
    }

    /// Another shard waits for space: segments are cleaned for it.
    pub(crate) fn begin_to_help(&self) {
        self.helping.set(true);
        self.wake();
    }

    /// Waits until something was gained for another shard, or nothing can be. `stop` ends the wait too.
    pub(crate) async fn helped(&self, stop: impl Fn() -> bool) -> bool {
        self.helped.until(|| (!self.helping.get() || stop()).then_some(())).await;
        self.help_gained.get()
    }

    /// True while segments are cleaned for another shard, or for repair.
    pub(super) fn cleans_for_somebody(&self) -> bool {
        self.helping.get() || self.cleans_for_repair()
    }

    /// The cleaner has done what it could.
    pub(super) fn cleaning_ended(&self, gained: bool) {
        if self.helping.replace(false) {
            self.help_gained.set(gained);
            self.helped.wake_all();
        }
    }

    /// Who waits for others to be done looks whether the shard stops.
    pub(super) fn stop(&self) {
        self.wake();
        self.helped.wake_all();
    }

    /// Somebody waits for space.
    fn is_urgent(&self) -> bool {
        self.cleans_for_somebody() || self.tries.get().iter().any(|tries| *tries > 0)
    }

    /// A stream has written a record, or everything in it was refused: it waits for nothing.
    pub(super) fn served(&self, stream: Stream) {
        let mut tries = self.tries.get();
        *tries.of_mut(stream) = 0;
        self.tries.set(tries);
    }

    /// Counts that a stream found no space; gives which time in a row it is.
    pub(super) fn found_none(&self, stream: Stream) -> u32 {
        let mut tries = self.tries.get();
        let count = tries.of_mut(stream);
        *count += 1;
        let count = *count;
        self.tries.set(tries);
        count
    }

    /// Has the cleaner look again.
    pub(crate) fn wake(&self) {
        self.rested_at.set(u32::MAX);
        self.work.notify();
        self.owed.wake_all();
    }

    /// There is nothing worth cleaning: nobody waits for it.
    pub(crate) fn rest(&self, coming: usize) {
        self.debt.set(0.0);
        self.cleaning.set(false);
        self.rested_at.set(self.space.free_for_users() + u32::try_from(coming).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
