//! Repair: completes the segments that miss columns, in the order of the number of further failures
//! that they tolerate.
//!
//! Works in batches until nothing is left or an obstacle remains, and then waits until that may
//! have changed. Progress is not persisted: rebuilt columns become durable with the next
//! checkpoint, as part of the segments' records, and a crash before that finds the segments
//! unchanged and the zones free. So there is nothing to resume.
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

/// The completeness of a shard's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completeness {
    /// The largest number of columns that a segment misses.
    pub(crate) missing: usize,
    /// Some columns are on draining drives.
    pub(crate) draining: bool,
}

impl Completeness {
    fn of(incomplete: &[Incomplete]) -> Self {
        Self {
            missing: incomplete.iter().map(|segment| segment.missing.len()).fold(0, usize::max),
            draining: incomplete.iter().any(|segment| !segment.draining.is_empty()),
        }
    }

    /// Returns the combined completeness of two shards.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { missing: self.missing.max(other.missing), draining: self.draining || other.draining }
    }

    /// Returns true if no column is missing or on a draining drive.
    pub(crate) fn is_whole(self) -> bool {
        self == Self::default()
    }
}

/// Segments that miss columns, ordered by the number of failures that they tolerate.
type RepairQueue = VecDeque<(SegmentId, Incarnation)>;

/// The repair state of a shard.
#[derive(Default)]
pub(super) struct Repairer {
    work: Notify,
    /// Number of requests to look for work, and the number that was handled.
    requested: Cell<u64>,
    handled: Cell<u64>,
    changed: WaitList,
    state: Cell<RepairState>,
    left: Cell<u64>,
    done: Cell<u64>,
    damaged: Cell<u64>,
    since_checkpoint: Cell<u64>,
    /// Repair waits for space, independent of its state.
    waits_for_space: Cell<bool>,
    /// A confirmation of completeness failed; repair looks again after the next checkpoint.
    unconfirmed: Cell<bool>,
    /// The completeness last reported to the control.
    reported: Cell<Option<Completeness>>,
    throttle: Throttle,
    /// Zones that are being written and belong to no segment yet.
    held: RefCell<BTreeSet<(DriveIndex, ZoneIndex)>>,
}

impl Repairer {
    /// Wakes the task: a condition that it waits for may have changed.
    pub(super) fn wake(&self) {
        self.changed.wake_all();
    }

    fn set_state(&self, state: RepairState) {
        self.state.set(state);
        self.changed.wake_all();
    }
}

impl Shard {
    /// Resets the state of repair, because a drive was attached or detached.
    pub(super) fn reset_repair(&self) {
        self.repair.reported.set(None);
        self.log.pacer.reset_repair_state();
    }

    /// Requests that repair looks for segments that miss columns.
    pub(crate) fn request_repair(&self) {
        self.repair.requested.set(self.repair.requested.get() + 1);
        self.repair.work.notify();
        self.repair.changed.wake_all();
    }

    /// Requests repair if it waits for space, because some may have been freed.
    pub(super) fn retry_repair_for_space(&self) {
        if self.repair.waits_for_space.get() {
            self.request_repair();
        }
    }

    /// Requests repair after a completed checkpoint, if it waits for one. Not after a failed one,
    /// which freed nothing: repair would request the next one immediately.
    pub(super) fn repair_after_checkpoint(&self) {
        if self.repair.unconfirmed.replace(false) {
            self.request_repair();
        }
        self.retry_repair_for_space();
    }

    /// Returns the status of repair.
    pub(crate) fn repair_status(&self) -> RepairStatus {
        let working = self.repair.state.get() == RepairState::Running;
        RepairStatus {
            state: self.repair.state.get(),
            bytes_left: self.repair.left.get(),
            bytes_done: self.repair.done.get(),
            bytes_per_second: if working { self.repair.throttle.rate() } else { 0 },
            damaged_rows: self.repair.damaged.get(),
        }
    }

    /// Waits until repair has handled all requests made by now.
    pub(crate) async fn wait_for_repair(&self) {
        let requested = self.repair.requested.get();
        let repair = &self.repair;
        let settled = || repair.handled.get() >= requested || self.stopping.get() || self.is_paused();
        repair.changed.until(|| settled().then_some(())).await;
    }

    fn is_paused(&self) -> bool {
        self.repair_limits.is_paused()
    }

    /// Repairs on request, until the shard stops. One task per shard.
    pub(super) async fn run_repair(self: Rc<Self>) {
        while !self.stopping.get() {
            self.repair.work.notified().await;
            let requested = self.repair.requested.get();
            if self.may_repair() {
                self.repair_limits.set_working(true);
                self.repair.throttle.begin(&self.repair_limits, Reactor::current().now());
                self.repair_all().await;
                self.repair_limits.set_working(false);
            }
            self.repair.handled.set(requested);
            self.repair.changed.wake_all();
        }
    }

    fn may_repair(&self) -> bool {
        !self.stopping.get() && self.log.failure().is_none()
    }

    /// Repairs the segments found to miss columns until all are complete or no progress is
    /// possible.
    async fn repair_all(self: &Rc<Self>) {
        let mut wrote = false;
        while self.may_repair() {
            let requested = self.repair.requested.get();
            let Some(waiting) = self.find_incomplete().await else { return };
            if waiting.is_empty() {
                self.log.pacer.reset_repair_state();
                self.repair.waits_for_space.set(false);
                self.repair.set_state(RepairState::Complete);
                return self.link.repair_finished(true).await;
            }
            if self.is_paused() {
                self.wait_while_paused(requested).await;
                continue;
            }
            let (began, obstacle) = match self.repair_batches(waiting, requested).await {
                Ok(result) => result,
                Err(error) => return self.log_repair_error(&error),
            };
            self.repair.waits_for_space.set(obstacle.contains(&RepairState::NeedsSpace));
            // Without an obstacle, some segments have records that are not applied yet.
            wrote |= began;
            if !began
                && let Some(obstacle) = obstacle.last()
                && requested == self.repair.requested.get()
            {
                self.repair.set_state(*obstacle);
                if self.repair.waits_for_space.get() {
                    self.log.pacer.repair_needs_space(self.repair.left.get());
                } else {
                    self.log.pacer.reset_repair_state();
                }
                if wrote {
                    self.log.checkpoints.request();
                }
                return self.report_completeness().await;
            }
        }
    }

    /// Repairs the segments in `waiting`, batch by batch, until there is a new request. Returns
    /// whether any work was begun, and the obstacles of the rest.
    async fn repair_batches(
        self: &Rc<Self>,
        mut waiting: RepairQueue,
        requested: u64,
    ) -> Result<(bool, BTreeSet<RepairState>)> {
        let (mut began, mut obstacles) = (false, BTreeSet::new());
        while !waiting.is_empty() && !obstacles.contains(&RepairState::NeedsSpace) {
            if !self.may_repair() || self.is_paused() || requested != self.repair.requested.get() {
                break;
            }
            let jobs = self.plan_batch(&mut waiting, &mut obstacles).await?;
            if !jobs.is_empty() {
                began = true;
                self.log.pacer.repair_got_space();
                self.repair.set_state(RepairState::Running);
                self.run_batch(jobs).await?;
            }
        }
        Ok((began, obstacles))
    }

    /// Reports the completeness to the control, once per change: a returned drive may be complete
    /// although others are not.
    async fn report_completeness(&self) {
        let complete = self.completeness();
        if self.repair.reported.replace(Some(complete)) != Some(complete) {
            self.link.repair_finished(false).await;
        }
    }

    fn completeness(&self) -> Completeness {
        let segments = self.rows.segments.borrow();
        Completeness::of(&segments.incomplete(|drive| self.rows.drives.use_of(drive)))
    }

    fn log_repair_error(&self, error: &crate::error::Error) {
        tracing::warn!(shard = %self.identity.shard, %error, "repair interrupted");
    }

    /// Returns the segments that miss columns, after sealing open ones where that helps. `None` if
    /// the log has failed.
    async fn find_incomplete(&self) -> Option<RepairQueue> {
        // A segment that is being opened may use zones that were chosen before a drive failed.
        self.log.appender.wait_for_opening().await;
        self.log.appender.seal_incomplete();
        self.rows.segments.borrow_mut().free_emptied();
        let check = || self.rows.segments.borrow().incomplete(|drive| self.rows.drives.use_of(drive));
        let mut incomplete = check();
        if !incomplete.is_empty() && self.repair.state.get() == RepairState::Complete {
            self.repair.done.set(0);
            let working = if self.is_paused() { RepairState::Paused } else { RepairState::Running };
            self.repair.set_state(working);
        }
        if !incomplete.is_empty() && incomplete.iter().all(|segment| !segment.stable) {
            // Let the records in flight be applied and become durable.
            self.log.wait_for_queued().await;
            self.log.flush().await.ok()?;
            self.rows.segments.borrow_mut().free_emptied();
            incomplete = check();
        }
        let blocks: u64 = incomplete.iter().map(Incomplete::blocks).sum();
        self.repair.left.set(blocks * BLOCK_BYTES);
        incomplete.sort_by_key(|segment| (segment.losses_left(), segment.id));
        Some(incomplete.into_iter().map(|segment| (segment.id, segment.incarnation)).collect())
    }

    /// Waits while repair is paused and there is no new request; missing columns are counted again
    /// afterwards.
    async fn wait_while_paused(&self, requested: u64) {
        self.repair.set_state(RepairState::Paused);
        // A paused repair needs no cleaning.
        self.log.pacer.reset_repair_state();
        let may_proceed =
            || !self.is_paused() || !self.may_repair() || requested != self.repair.requested.get();
        self.repair.changed.until(|| may_proceed().then_some(())).await;
    }

    /// Returns the completeness of all segments that a recovery could find (Z2), after a
    /// checkpoint; `None` if it cannot be determined, or if `only_whole` and columns are missing.
    /// Repair looks again when that may have changed.
    pub(crate) async fn confirm(self: &Rc<Self>, only_whole: bool) -> Option<Completeness> {
        if self.stopping.get() {
            return None;
        }
        // A stop of the shard waits for the end of this.
        let _task = self.begin_task();
        self.wait_for_service().await.ok()?;
        self.log.appender.wait_for_opening().await;
        // Freed segments do not count: a checkpoint that begins now does not contain them.
        let check = || (self.rows.segments.borrow().version(), self.completeness());
        let (version, before) = check();
        let is_useful = before.is_whole() || !only_whole;
        let confirmed = is_useful && self.checkpoint().await.is_ok() && check() == (version, before);
        if !confirmed {
            // Repair finds a segment that changed meanwhile; after a failed checkpoint there is
            // nothing to do before the next one.
            self.repair.unconfirmed.set(true);
            self.repair.reported.set(None);
            if only_whole && !check().1.is_whole() {
                self.request_repair();
            }
        }
        confirmed.then_some(before)
    }

    /// Waits until no operation uses a failed drive any more: then it may return.
    pub(crate) async fn wait_until_unused(&self, drive: DriveIndex) {
        self.log.wait_for_queued().await;
        let holds = || self.repair.held.borrow().iter().any(|(on, _)| *on == drive);
        self.repair.changed.until(|| (!holds()).then_some(())).await;
    }

    /// Sets the drives that are draining.
    pub(crate) fn set_draining(&self, draining: &[DriveIndex]) {
        self.rows.drives.set_draining(draining);
        self.request_repair();
    }
}
