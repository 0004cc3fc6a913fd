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
use std::sync::Arc;

use super::Shard;
use super::background::{Background, BackgroundJob, StepOutcome};
use crate::error::Result;
use crate::repair::{BackgroundBudget, BackgroundLimiter, RepairState, RepairStatus, Throttle};
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

/// A run of repair, which ends when all segments are complete, or an obstacle remains.
#[derive(Clone, Copy)]
struct RepairRun {
    /// Number of requests that are handled when the run ends.
    requested: u64,
    /// Columns were written.
    wrote: bool,
}

/// The repair state of a shard.
#[derive(Default)]
pub(crate) struct Repairer {
    /// The limits of repair, for all shards.
    limits: Arc<BackgroundLimiter>,
    run: Cell<Option<RepairRun>>,
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

impl BackgroundJob for Repairer {
    async fn wait_for_work(&self, _: &Shard) {
        self.work.notified().await;
    }

    async fn step(&self, shard: &Rc<Shard>) -> StepOutcome {
        let mut run = self.run.take().unwrap_or_else(|| self.begin_run());
        if self.pass(shard, &mut run).await && !shard.has_ended() {
            self.run.set(Some(run));
            return StepOutcome::More;
        }
        self.end_run(run);
        StepOutcome::Idle
    }
}

impl Repairer {
    /// Creates the state with the limits of all shards, and the budget of this one.
    pub(super) fn new(limits: Arc<BackgroundLimiter>, budget: Rc<BackgroundBudget>) -> Self {
        Self { limits, throttle: Throttle::new(budget), ..Self::default() }
    }

    /// Wakes the task: a condition that it waits for may have changed.
    pub(super) fn wake(&self) {
        self.changed.wake_all();
    }

    fn set_state(&self, state: RepairState) {
        self.state.set(state);
        self.changed.wake_all();
    }

    /// Resets the state of repair, because a drive was attached or detached.
    pub(super) fn reset(&self, shard: &Shard) {
        self.reported.set(None);
        shard.log.pacer.reset_repair_state();
    }

    /// Requests that repair looks for segments that miss columns.
    pub(crate) fn request(&self) {
        self.requested.set(self.requested.get() + 1);
        self.work.notify();
        self.changed.wake_all();
    }

    /// Requests repair if it waits for space, because some may have been freed.
    pub(super) fn retry_for_space(&self) {
        if self.waits_for_space.get() {
            self.request();
        }
    }

    /// Requests repair after a completed checkpoint, if it waits for one. Not after a failed one,
    /// which freed nothing: repair would request the next one immediately.
    pub(super) fn on_checkpoint(&self) {
        if self.unconfirmed.replace(false) {
            self.request();
        }
        self.retry_for_space();
    }

    /// Returns the status of repair.
    pub(crate) fn status(&self) -> RepairStatus {
        let working = self.state.get() == RepairState::Running;
        RepairStatus {
            state: self.state.get(),
            bytes_left: self.left.get(),
            bytes_done: self.done.get(),
            bytes_per_second: if working { self.throttle.rate() } else { 0 },
            damaged_rows: self.damaged.get(),
        }
    }

    /// Waits until repair has handled all requests made by now.
    pub(crate) async fn wait_for_requests(&self, shard: &Shard) {
        let requested = self.requested.get();
        let settled =
            || self.handled.get() >= requested || shard.background.is_stopping() || self.is_paused();
        self.changed.until(|| settled().then_some(())).await;
    }

    fn is_paused(&self) -> bool {
        self.limits.is_paused()
    }

    fn begin_run(&self) -> RepairRun {
        self.throttle.begin(&self.limits, Reactor::current().now());
        RepairRun { requested: self.requested.get(), wrote: false }
    }

    fn end_run(&self, run: RepairRun) {
        self.throttle.end(&self.limits);
        self.handled.set(run.requested);
        self.changed.wake_all();
    }

    /// Repairs the segments that are found to miss columns. Returns false if all are complete, or
    /// no progress is possible.
    async fn pass(&self, shard: &Rc<Shard>, run: &mut RepairRun) -> bool {
        if shard.has_ended() {
            return false;
        }
        let requested = self.requested.get();
        let Some(waiting) = self.find_incomplete(shard).await else { return false };
        if waiting.is_empty() {
            shard.log.pacer.reset_repair_state();
            self.waits_for_space.set(false);
            self.set_state(RepairState::Complete);
            shard.link.repair_finished(true).await;
            return false;
        }
        if self.is_paused() {
            self.wait_while_paused(shard, requested).await;
            return true;
        }
        let (began, obstacle) = match self.repair_batches(shard, waiting, requested).await {
            Ok(result) => result,
            Err(error) => {
                self.log_error(shard, &error);
                return false;
            }
        };
        self.waits_for_space.set(obstacle.contains(&RepairState::NeedsSpace));
        run.wrote |= began;
        // Without an obstacle, some segments have records that are not applied yet.
        let Some(obstacle) = obstacle.last().filter(|_| !began && requested == self.requested.get()) else {
            return true;
        };
        self.set_state(*obstacle);
        if self.waits_for_space.get() {
            shard.log.pacer.repair_needs_space(self.left.get());
        } else {
            shard.log.pacer.reset_repair_state();
        }
        if run.wrote {
            shard.log.checkpoints.request();
        }
        self.report_completeness(shard).await;
        false
    }

    /// Repairs the segments in `waiting`, batch by batch, until there is a new request. Returns
    /// whether any work was begun, and the obstacles of the rest.
    async fn repair_batches(
        &self,
        shard: &Rc<Shard>,
        mut waiting: RepairQueue,
        requested: u64,
    ) -> Result<(bool, BTreeSet<RepairState>)> {
        let (mut began, mut obstacles) = (false, BTreeSet::new());
        while !waiting.is_empty() && !obstacles.contains(&RepairState::NeedsSpace) {
            if shard.has_ended() || self.is_paused() || requested != self.requested.get() {
                break;
            }
            let jobs = self.plan_batch(shard, &mut waiting, &mut obstacles).await?;
            if !jobs.is_empty() {
                began = true;
                shard.log.pacer.repair_got_space();
                self.set_state(RepairState::Running);
                self.run_batch(shard, jobs).await?;
            }
        }
        Ok((began, obstacles))
    }

    /// Reports the completeness to the control, once per change: a returned drive may be complete
    /// although others are not.
    async fn report_completeness(&self, shard: &Shard) {
        let complete = self.completeness(shard);
        if self.reported.replace(Some(complete)) != Some(complete) {
            shard.link.repair_finished(false).await;
        }
    }

    fn completeness(&self, shard: &Shard) -> Completeness {
        let segments = shard.rows.segments.borrow();
        Completeness::of(&segments.incomplete(|drive| shard.rows.drives.use_of(drive)))
    }

    fn log_error(&self, shard: &Shard, error: &crate::error::Error) {
        tracing::warn!(shard = %shard.identity.shard, %error, "repair interrupted");
    }

    /// Returns the segments that miss columns, after sealing open ones where that helps. `None` if
    /// the log has failed.
    async fn find_incomplete(&self, shard: &Shard) -> Option<RepairQueue> {
        // A segment that is being opened may use zones that were chosen before a drive failed.
        shard.log.appender.wait_for_opening().await;
        shard.log.appender.seal_incomplete();
        shard.rows.segments.borrow_mut().free_emptied();
        let check = || shard.rows.segments.borrow().incomplete(|drive| shard.rows.drives.use_of(drive));
        let mut incomplete = check();
        if !incomplete.is_empty() && self.state.get() == RepairState::Complete {
            self.done.set(0);
            let working = if self.is_paused() { RepairState::Paused } else { RepairState::Running };
            self.set_state(working);
        }
        if !incomplete.is_empty() && incomplete.iter().all(|segment| !segment.stable) {
            // Let the records in flight be applied and become durable.
            shard.log.wait_for_queued().await;
            shard.log.flush().await.ok()?;
            shard.rows.segments.borrow_mut().free_emptied();
            incomplete = check();
        }
        let blocks: u64 = incomplete.iter().map(Incomplete::blocks).sum();
        self.left.set(blocks * BLOCK_BYTES);
        incomplete.sort_by_key(|segment| (segment.losses_left(), segment.id));
        Some(incomplete.into_iter().map(|segment| (segment.id, segment.incarnation)).collect())
    }

    /// Waits while repair is paused and there is no new request; missing columns are counted again
    /// afterwards.
    async fn wait_while_paused(&self, shard: &Shard, requested: u64) {
        self.set_state(RepairState::Paused);
        // A paused repair needs no cleaning.
        shard.log.pacer.reset_repair_state();
        let may_proceed = || !self.is_paused() || shard.has_ended() || requested != self.requested.get();
        self.changed.until(|| may_proceed().then_some(())).await;
    }

    /// Returns the completeness of all segments that a recovery could find (Z2), after a
    /// checkpoint; `None` if it cannot be determined, or if `only_whole` and columns are missing.
    /// Repair looks again when that may have changed.
    pub(crate) async fn confirm(&self, shard: &Rc<Shard>, only_whole: bool) -> Option<Completeness> {
        if shard.background.is_stopping() {
            return None;
        }
        // A stop of the shard waits for the end of this.
        let _task = Background::begin_task(shard);
        shard.checkpointer.wait_for_service(shard).await.ok()?;
        shard.log.appender.wait_for_opening().await;
        // Freed segments do not count: a checkpoint that begins now does not contain them.
        let check = || (shard.rows.segments.borrow().version(), self.completeness(shard));
        let (version, before) = check();
        let is_useful = before.is_whole() || !only_whole;
        let confirmed =
            is_useful && shard.checkpointer.checkpoint(shard).await.is_ok() && check() == (version, before);
        if !confirmed {
            // Repair finds a segment that changed meanwhile; after a failed checkpoint there is
            // nothing to do before the next one.
            self.unconfirmed.set(true);
            self.reported.set(None);
            if only_whole && !check().1.is_whole() {
                self.request();
            }
        }
        confirmed.then_some(before)
    }

    /// Waits until no operation uses a failed drive any more: then it may return.
    pub(crate) async fn wait_until_unused(&self, shard: &Shard, drive: DriveIndex) {
        shard.log.wait_for_queued().await;
        let holds = || self.held.borrow().iter().any(|(on, _)| *on == drive);
        self.changed.until(|| (!holds()).then_some(())).await;
    }

    /// Sets the drives that are draining.
    pub(crate) fn set_draining(&self, shard: &Shard, draining: &[DriveIndex]) {
        shard.rows.drives.set_draining(draining);
        self.request();
    }
}
