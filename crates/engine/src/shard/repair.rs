//! BackgroundLimiter: completes the segments that miss columns, those first that bear the fewest losses, until all are whole.
//!
//! A batch of segments at a time, until nothing is left or something stands in the way; then it waits until that may have changed.
//! Nothing of that is noted anywhere: it becomes durable with the next checkpoint, as the segments' place, and a crash before that
//! finds the segments as they were and the zones free. So there is nothing to resume.
//!
//! Must not know: how a batch is chosen and written.

mod batch;

use format::limits::BLOCK_BYTES;
use format::{DriveIndex, Incarnation, SegmentId, ZoneIndex};
use reactor::{Notify, Reactor, WaitList};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use super::Shard;
use crate::error::Result;
use crate::repair::{RepairState, RepairStatus, Throttle};
use crate::segments::Incomplete;

/// How complete the segments of a shard are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completeness {
    /// Columns that a segment misses at most.
    pub(crate) missing: usize,
    /// Some lie on drives that are to be emptied.
    pub(crate) leaving: bool,
}

impl Completeness {
    fn of(incomplete: &[Incomplete]) -> Self {
        Self {
            missing: incomplete.iter().map(|segment| segment.missing.len()).max().unwrap_or(0),
            leaving: incomplete.iter().any(|segment| !segment.draining.is_empty()),
        }
    }

    /// Both taken together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { missing: self.missing.max(other.missing), leaving: self.leaving || other.leaving }
    }

    /// All columns are there to stay.
    pub(crate) fn is_whole(self) -> bool {
        self == Self::default()
    }
}

/// Segments that were found to miss columns, those first that bear the fewest losses.
type RepairQueue = VecDeque<(SegmentId, Incarnation)>;

/// A shard's repair.
#[derive(Default)]
pub(super) struct Repairer {
    work: Notify,
    /// Times that it was told to look, and those that it has looked for.
    asked: Cell<u64>,
    looked: Cell<u64>,
    changed: WaitList,
    state: Cell<RepairState>,
    left: Cell<u64>,
    done: Cell<u64>,
    damaged: Cell<u64>,
    since_checkpoint: Cell<u64>,
    /// What it could not go on for, besides what its state says.
    wants_space: Cell<bool>,
    /// It could not confirm that everything is whole, and is to look again after the next checkpoint.
    unconfirmed: Cell<bool>,
    /// How complete the control was told that segments are.
    told: Cell<Option<Completeness>>,
    throttle: Throttle,
    /// Zones that are being written and belong to no segment.
    held: RefCell<BTreeSet<(DriveIndex, ZoneIndex)>>,
}

impl Repairer {
    /// Ends a wait of the task: something that it waits for may have changed.
    pub(super) fn wake(&self) {
        self.changed.wake_all();
    }

    fn set_state(&self, state: RepairState) {
        self.state.set(state);
        self.changed.wake_all();
    }
}

impl Shard {
    /// A drive came or went: what repair knew of how far it is counts no more.
    pub(super) fn reset_repair(&self) {
        self.repair.told.set(None);
        self.log.pacer.reset_repair_state();
    }

    /// Has repair look for segments that miss columns.
    pub(crate) fn request_repair(&self) {
        self.repair.asked.set(self.repair.asked.get() + 1);
        self.repair.work.notify();
        self.repair.changed.wake_all();
    }

    /// Space may have come back: repair looks again, if it waits for that.
    pub(super) fn retry_repair_for_space(&self) {
        if self.repair.wants_space.get() {
            self.request_repair();
        }
    }

    /// A checkpoint was made. One that could not be gave nothing back: repair that looked again for it would ask for the next one at once.
    pub(super) fn repair_after_checkpoint(&self) {
        if self.repair.unconfirmed.replace(false) {
            self.request_repair();
        }
        self.retry_repair_for_space();
    }

    /// How far repair is.
    pub(crate) fn repair_status(&self) -> RepairStatus {
        let working = self.repair.state.get() == RepairState::Working;
        RepairStatus {
            state: self.repair.state.get(),
            bytes_left: self.repair.left.get(),
            bytes_done: self.repair.done.get(),
            bytes_per_second: if working { self.repair.throttle.rate() } else { 0 },
            damaged_rows: self.repair.damaged.get(),
        }
    }

    /// Waits until repair has done what it can for now.
    pub(crate) async fn wait_for_repair(&self) {
        let asked = self.repair.asked.get();
        let repair = &self.repair;
        let settled = || repair.looked.get() >= asked || self.stopping.get() || self.is_paused();
        repair.changed.until(|| settled().then_some(())).await;
    }

    fn is_paused(&self) -> bool {
        self.repair_limits.is_paused()
    }

    /// Repairs whenever there is something to, until the shard stops. One task a shard.
    pub(super) async fn run_repair(self: Rc<Self>) {
        while !self.stopping.get() {
            self.repair.work.notified().await;
            let asked = self.repair.asked.get();
            if self.may_repair() {
                self.repair_limits.set_working(true);
                self.repair.throttle.begin(&self.repair_limits, Reactor::current().now());
                self.repair_all().await;
                self.repair_limits.set_working(false);
            }
            self.repair.looked.set(asked);
            self.repair.changed.wake_all();
        }
    }

    fn may_repair(&self) -> bool {
        !self.stopping.get() && self.log.failure().is_none()
    }

    /// Again and again what is found to miss columns, until everything is whole or nothing can be done now.
    async fn repair_all(self: &Rc<Self>) {
        let mut wrote = false;
        while self.may_repair() {
            let asked = self.repair.asked.get();
            let Some(waiting) = self.find_incomplete().await else { return };
            if waiting.is_empty() {
                self.log.pacer.reset_repair_state();
                self.repair.wants_space.set(false);
                self.repair.set_state(RepairState::Whole);
                return self.link.repair_finished(true).await;
            }
            if self.is_paused() {
                self.wait_while_paused(asked).await;
                continue;
            }
            let (began, obstacle) = match self.repair_each(waiting, asked).await {
                Ok(result) => result,
                Err(error) => return self.log_repair_error(&error),
            };
            self.repair.wants_space.set(obstacle.contains(&RepairState::NeedsSpace));
            // Without an obstacle there are segments that have to land first.
            wrote |= began;
            if !began && !obstacle.is_empty() && asked == self.repair.asked.get() {
                self.repair.set_state(obstacle.last().copied().unwrap_or_default());
                if self.repair.wants_space.get() {
                    self.log.pacer.repair_needs_space(self.repair.left.get());
                } else {
                    self.log.pacer.reset_repair_state();
                }
                if wrote {
                    self.log.checkpoint_due.notify();
                }
                return self.report_completeness().await;
            }
        }
    }

    /// Batch after batch of what is `waiting`, as long as nothing else was `asked`. Tells whether there was anything to begin
    /// with, and what stands in the way of the rest.
    async fn repair_each(
        self: &Rc<Self>,
        mut waiting: RepairQueue,
        asked: u64,
    ) -> Result<(bool, BTreeSet<RepairState>)> {
        let (mut began, mut obstacles) = (false, BTreeSet::new());
        while !waiting.is_empty() && !obstacles.contains(&RepairState::NeedsSpace) {
            if !self.may_repair() || self.is_paused() || asked != self.repair.asked.get() {
                break;
            }
            let jobs = self.plan_batch(&mut waiting, &mut obstacles).await?;
            if !jobs.is_empty() {
                began = true;
                self.log.pacer.repair_got_space();
                self.repair.set_state(RepairState::Working);
                self.run_batch(jobs).await?;
            }
        }
        Ok((began, obstacles))
    }

    /// Nothing can be done now: but a drive that has come back may have all that it missed. Once for each time that this changes.
    async fn report_completeness(&self) {
        let complete = self.completeness();
        if self.repair.told.replace(Some(complete)) != Some(complete) {
            self.link.repair_finished(false).await;
        }
    }

    fn completeness(&self) -> Completeness {
        let segments = self.rows.segments.borrow();
        Completeness::of(&segments.incomplete(|drive| self.rows.drives.use_of(drive)))
    }

    fn log_repair_error(&self, error: &crate::error::Error) {
        tracing::warn!(shard = %self.identity.shard, %error, "repair does not go on");
    }

    /// The segments that miss columns; those of them that are open are ended if that helps. `None` if the log has failed.
    async fn find_incomplete(&self) -> Option<RepairQueue> {
        // A segment whose zones were chosen before a drive was lost may be on its way.
        self.wait_for_service().await.ok()?;
        self.log.wait_for_opening().await;
        self.log.seal_incomplete();
        self.rows.segments.borrow_mut().free_emptied();
        let look = || self.rows.segments.borrow().incomplete(|drive| self.rows.drives.use_of(drive));
        let mut incomplete = look();
        if !incomplete.is_empty() && self.repair.state.get() == RepairState::Whole {
            self.repair.done.set(0);
            let working = if self.is_paused() { RepairState::Paused } else { RepairState::Working };
            self.repair.set_state(working);
        }
        if !incomplete.is_empty() && incomplete.iter().all(|segment| !segment.stable) {
            // What is on its way lands, and what has landed becomes durable.
            self.log.settle().await;
            self.log.flush().await.ok()?;
            self.rows.segments.borrow_mut().free_emptied();
            incomplete = look();
        }
        let blocks: u64 = incomplete.iter().map(Incomplete::blocks).sum();
        self.repair.left.set(blocks * BLOCK_BYTES);
        incomplete.sort_by_key(|segment| (segment.losses_left(), segment.id));
        Some(incomplete.into_iter().map(|segment| (segment.id, segment.incarnation)).collect())
    }

    /// Waits while repair is paused, and nothing else than what it was `asked` has happened: what is missing is counted anew then.
    async fn wait_while_paused(&self, asked: u64) {
        self.repair.set_state(RepairState::Paused);
        // Nothing is cleaned for who does nothing.
        self.log.pacer.reset_repair_state();
        let goes_on = || !self.is_paused() || !self.may_repair() || asked != self.repair.asked.get();
        self.repair.changed.until(|| goes_on().then_some(())).await;
    }

    /// How complete everything is that a recovery could come upon (Z2); `None` if that cannot be told, or it is not whole and that
    /// is all that is asked for. BackgroundLimiter looks again by itself when that may have changed.
    pub(crate) async fn confirm(self: &Rc<Self>, only_whole: bool) -> Option<Completeness> {
        if self.stopping.get() {
            return None;
        }
        // Whoever stops the shard waits for the end of this.
        let _task = self.begin_task();
        self.log.wait_for_opening().await;
        // Segments that are free already do not count: no checkpoint that begins now speaks of them.
        let look = || (self.rows.segments.borrow().version(), self.completeness());
        let (version, before) = look();
        let worth = before.is_whole() || !only_whole;
        let confirmed = worth && self.checkpoint().await.is_ok() && look() == (version, before);
        if !confirmed {
            // A segment that came meanwhile is there to be found; without a checkpoint there is nothing to do before the next one.
            self.repair.unconfirmed.set(true);
            self.repair.told.set(None);
            if only_whole && !look().1.is_whole() {
                self.request_repair();
            }
        }
        confirmed.then_some(before)
    }

    /// Waits until nothing that was begun before touches a drive that is lost: it may come back then.
    pub(crate) async fn wait_until_unused(&self, drive: DriveIndex) {
        self.log.settle().await;
        let holds = || self.repair.held.borrow().iter().any(|(on, _)| *on == drive);
        self.repair.changed.until(|| (!holds()).then_some(())).await;
    }

    /// These drives, and no others, are to be emptied.
    pub(crate) fn set_draining(&self, leaving: &[DriveIndex]) {
        self.rows.drives.set_draining(leaving);
        self.request_repair();
    }
}
