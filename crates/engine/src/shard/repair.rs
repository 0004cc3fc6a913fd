//! Repair: completes the segments that miss columns, those first that bear the fewest losses, until all are whole.
//!
//! A batch of segments at a time: find zones on drives that the segment does not lie on; write the columns; flush; change
//! the segments in memory. Nothing of that is noted anywhere: it becomes durable with the next checkpoint, as the segment's
//! place, and a crash before that finds the segments as they were and the zones free. So there is nothing to resume.
//!
//! Always true: a segment changes only when its new columns are flushed (Z3), and is pinned from when it was looked at.

use format::limits::BLOCK_BYTES;
use format::{Column, DriveIndex, Incarnation, Row, SegmentId, ZoneIndex};
use reactor::{Notify, Reactor, Semaphore, WaitList};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use super::Shard;
use super::rebuild::{Job, Rebuild, Target, gone};
use crate::control::Spare;
use crate::error::Result;
use crate::repair::{RepairState, RepairStatus, Throttle};
use crate::segments::Incomplete;

/// Segments under way at once.
const JOBS_AT_ONCE: usize = 4;
/// Segments of a batch, which are flushed together, at most.
const BATCH_JOBS: usize = 64;
/// Bytes written from which on a batch is large enough.
const BATCH_BYTES: u64 = 256 << 20;
/// The same in time, if there is a limit to how fast repair may go.
const BATCH_TIME: Duration = Duration::from_secs(2);
/// Bytes written after which a checkpoint makes them last: what a crash makes repair do again at most, and a batch.
const CHECKPOINT_BYTES: u64 = 1 << 30;

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
            leaving: incomplete.iter().any(|segment| !segment.leaving.is_empty()),
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
type Waiting = VecDeque<(SegmentId, Incarnation)>;

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
    pub(super) fn repair_anew(&self) {
        self.repair.told.set(None);
        self.log.pace.repair_served();
    }

    /// Has repair look for segments that miss columns.
    pub(crate) fn repair_soon(&self) {
        self.repair.asked.set(self.repair.asked.get() + 1);
        self.repair.work.notify();
        self.repair.changed.wake_all();
    }

    /// Space may have come back: repair looks again, if it waits for that.
    pub(super) fn repair_if_short(&self) {
        if self.repair.wants_space.get() {
            self.repair_soon();
        }
    }

    /// A checkpoint was made, or could not be.
    pub(super) fn repair_after_checkpoint(&self, made: bool) {
        if made && self.repair.unconfirmed.replace(false) {
            self.repair_soon();
        }
        self.repair_if_short();
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
    pub(crate) async fn repair_settled(&self) {
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
            if self.repair_goes_on() {
                self.repair.throttle.begin(Reactor::current().now());
                self.repair_limits.set_working(true);
                self.repair_all().await;
                self.repair_limits.set_working(false);
            }
            self.repair.looked.set(asked);
            self.repair.changed.wake_all();
        }
    }

    fn repair_goes_on(&self) -> bool {
        !self.stopping.get() && self.log.failure().is_none()
    }

    /// Again and again what is found to miss columns, until everything is whole or nothing can be done now.
    async fn repair_all(self: &Rc<Self>) {
        let mut wrote = false;
        while self.repair_goes_on() {
            let asked = self.repair.asked.get();
            let Some(waiting) = self.find_incomplete().await else { return };
            if waiting.is_empty() {
                self.log.pace.repair_served();
                self.repair.wants_space.set(false);
                self.repair.set_state(RepairState::Whole);
                return self.link.repaired(true).await;
            }
            if self.is_paused() {
                self.wait_while_paused().await;
                continue;
            }
            let (began, obstacle) = match self.repair_each(waiting, asked).await {
                Ok(result) => result,
                Err(error) => return self.could_not(&error),
            };
            self.repair.wants_space.set(obstacle.contains(&RepairState::NeedsSpace));
            // Without an obstacle there are segments that have to land first.
            wrote |= began;
            if !began && !obstacle.is_empty() && asked == self.repair.asked.get() {
                self.repair.set_state(obstacle.last().copied().unwrap_or_default());
                if self.repair.wants_space.get() {
                    self.log.pace.repair_found_none(self.repair.left.get());
                } else {
                    self.log.pace.repair_served();
                }
                if wrote {
                    self.log.checkpoint_due.notify();
                }
                return self.tell_how_complete().await;
            }
        }
    }

    /// Batch after batch of what is `waiting`, as long as nothing else was `asked`. Tells whether there was anything to begin
    /// with, and what stands in the way of the rest.
    async fn repair_each(
        self: &Rc<Self>,
        mut waiting: Waiting,
        asked: u64,
    ) -> Result<(bool, BTreeSet<RepairState>)> {
        let (mut began, mut obstacles) = (false, BTreeSet::new());
        while !waiting.is_empty() && !obstacles.contains(&RepairState::NeedsSpace) {
            if !self.repair_goes_on() || self.is_paused() || asked != self.repair.asked.get() {
                break;
            }
            let jobs = self.plan_batch(&mut waiting, &mut obstacles).await?;
            if !jobs.is_empty() {
                began = true;
                self.log.pace.repair_found_some();
                self.repair.set_state(RepairState::Working);
                self.run_batch(jobs).await?;
            }
        }
        Ok((began, obstacles))
    }

    /// Nothing can be done now: but a drive that has come back may have all that it missed. Once for each time that this changes.
    async fn tell_how_complete(&self) {
        let complete = self.completeness();
        if self.repair.told.replace(Some(complete)) != Some(complete) {
            self.link.repaired(false).await;
        }
    }

    fn completeness(&self) -> Completeness {
        let segments = self.rows.segments.borrow();
        Completeness::of(&segments.incomplete(|drive| self.rows.drives.standing(drive)))
    }

    fn could_not(&self, error: &crate::error::Error) {
        tracing::warn!(shard = %self.identity.shard, %error, "repair does not go on");
    }

    /// The segments that miss columns; those of them that are open are ended if that helps. `None` if the log has failed.
    async fn find_incomplete(&self) -> Option<Waiting> {
        // A segment whose zones were chosen before a drive was lost may be on its way.
        self.log.arrivals().await;
        self.log.seal_incomplete();
        self.rows.segments.borrow_mut().free_emptied();
        let look = || self.rows.segments.borrow().incomplete(|drive| self.rows.drives.standing(drive));
        let mut incomplete = look();
        if !incomplete.is_empty() && self.repair.state.get() == RepairState::Whole {
            self.repair.done.set(0);
            let working = if self.is_paused() { RepairState::Paused } else { RepairState::Working };
            self.repair.set_state(working);
        }
        if !incomplete.is_empty() && incomplete.iter().all(|segment| !segment.settled) {
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

    async fn wait_while_paused(&self) {
        self.repair.set_state(RepairState::Paused);
        // Nothing is cleaned for who does nothing.
        self.log.pace.repair_served();
        let goes_on = || !self.is_paused() || !self.repair_goes_on();
        self.repair.changed.until(|| goes_on().then_some(())).await;
    }

    /// Segments to complete next, pinned, with zones for their columns; `obstacles` are what stands in the way of others.
    async fn plan_batch(
        &self,
        waiting: &mut Waiting,
        obstacles: &mut BTreeSet<RepairState>,
    ) -> Result<Vec<Job>> {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        // What is begun holds zones and pins: no more than is done soon.
        let bytes_max = self.repair_limits.bytes_within(BATCH_TIME).min(BATCH_BYTES);
        while jobs.len() < BATCH_JOBS && bytes < bytes_max && !obstacles.contains(&RepairState::NeedsSpace) {
            let Some((id, incarnation)) = waiting.pop_front() else { break };
            let standing = |drive| self.rows.drives.standing(drive);
            let found = self.rows.segments.borrow().incomplete_still(id, incarnation, standing);
            let Some(segment) = found else { continue };
            if segment.missing.len() > usize::from(segment.scheme.parity()) {
                obstacles.insert(RepairState::Lost);
                continue;
            }
            if !segment.settled {
                obstacles.extend(self.why_open(&segment));
                continue;
            }
            self.rows.segments.borrow_mut().pin(id);
            let mut job = Job { segment, targets: SmallVec::new() };
            let found = self.find_zones(&mut job, obstacles).await;
            if job.targets.is_empty() || found.is_err() {
                self.give_up_job(&job);
            } else {
                bytes += job.bytes();
                jobs.push(job);
            }
            if let Err(error) = found {
                jobs.iter().for_each(|job| self.give_up_job(job));
                return Err(error);
            }
        }
        Ok(jobs)
    }

    /// Why a segment cannot be ended: its successor would be no better. `None` for one that only has to land and to be flushed.
    fn why_open(&self, segment: &Incomplete) -> Option<RepairState> {
        let is_open = self.rows.segments.borrow().is_open(segment.id);
        if self.rows.drives.staying() < usize::from(segment.scheme.width()) {
            is_open.then_some(RepairState::NeedsDrive)
        } else {
            (is_open && !self.log.pace.space.has_whole()).then_some(RepairState::NeedsSpace)
        }
    }

    /// Zones for the columns of a job, as far as there are any; `obstacles` are what stands in the way of the others.
    async fn find_zones(&self, job: &mut Job, obstacles: &mut BTreeSet<RepairState>) -> Result<()> {
        for column in job.segment.wanted() {
            let avoid = job.segment.avoid(column).chain(job.targets.iter().map(|target| target.zone.0));
            match self.link.allocate_one(avoid.collect()).await? {
                Spare::Zone(zone) => {
                    self.repair.held.borrow_mut().insert(zone);
                    job.targets.push(Target { column, zone });
                }
                Spare::NoSpace => _ = obstacles.insert(RepairState::NeedsSpace),
                Spare::NoDrive => _ = obstacles.insert(RepairState::NeedsDrive),
            }
        }
        Ok(())
    }

    /// Writes the columns of all jobs, and lets those whose columns are durable take effect.
    async fn run_batch(self: &Rc<Self>, jobs: Vec<Job>) -> Result<()> {
        let permits = Semaphore::new(JOBS_AT_ONCE);
        let mut tasks = Vec::new();
        for job in jobs {
            let (shard, permits) = (self.clone(), permits.clone());
            let task = async move {
                let _permit = permits.acquire().await;
                let written = shard.run_job(&job).await;
                (job, written)
            };
            tasks.push(Reactor::current().spawn(task));
        }
        let (mut written, mut result) = (Vec::new(), Ok(()));
        for task in tasks {
            match task.await {
                (job, Ok(true)) => written.push(job),
                (job, Ok(false)) => self.give_up_job(&job),
                (job, Err(error)) => {
                    self.give_up_job(&job);
                    tracing::warn!(shard = %self.identity.shard, segment = %job.segment.id, %error, "a segment was not completed");
                    result = self.log.failure().map_or(Ok(()), Err);
                }
            }
        }
        let flushed = self.flush_targets(&written).await;
        for job in written {
            if flushed.is_ok() && self.take_effect(&job) {
                self.rows.segments.borrow_mut().unpin(job.segment.id);
            } else {
                self.give_up_job(&job);
            }
        }
        self.repair.changed.wake_all();
        if self.repair.since_checkpoint.get() >= CHECKPOINT_BYTES {
            self.repair.since_checkpoint.set(0);
            self.log.checkpoint_due.notify();
        }
        flushed.and(result)
    }

    /// Writes the columns of one segment; false if they are not needed any more, or repair stops.
    async fn run_job(&self, job: &Job) -> Result<bool> {
        let record = self.rows.segments.borrow().record(job.segment.id);
        let mut rebuild = Rebuild::new(self, job, &record);
        let mut row = 0;
        while row < job.segment.rows {
            let needed = self.rows.segments.borrow().needs_columns(job.segment.id, job.segment.incarnation);
            // What is paused holds no space back: it begins anew.
            if !needed || !self.repair_goes_on() || self.is_paused() {
                return Ok(false);
            }
            let begun = Reactor::current().now();
            let count = job.piece_rows().min(job.segment.rows - row);
            rebuild.write_rows(Row::new(row), count).await?;
            row += count;
            self.wrote(u64::from(count) * job.targets.len() as u64 * BLOCK_BYTES, begun).await;
        }
        self.report_gone().await;
        self.heal_what_was_met(job, &rebuild);
        if rebuild.damaged > 0 {
            self.repair.damaged.set(self.repair.damaged.get() + rebuild.damaged);
            tracing::error!(shard = %self.identity.shard, segment = %job.segment.id, rows = rebuild.damaged, "rows could not be computed: too many of their cells are damaged");
        }
        Ok(true)
    }

    /// Has the columns written anew, too, in which there was damage on the way: nobody waits for a scrub to find it again.
    fn heal_what_was_met(&self, job: &Job, rebuild: &Rebuild<'_>) {
        for column in rebuild.met.iter() {
            tracing::warn!(shard = %self.identity.shard, segment = %job.segment.id, column, "a column is damaged: it is written anew");
            self.rows.segments.borrow_mut().mark_damaged(job.segment.id, Column::new(column));
        }
    }

    /// Counts what was written, and leaves the drives to others for as long as the limits say.
    async fn wrote(&self, bytes: u64, begun: reactor::Instant) {
        let repair = &self.repair;
        repair.done.set(repair.done.get() + bytes);
        repair.left.set(repair.left.get().saturating_sub(bytes));
        repair.since_checkpoint.set(repair.since_checkpoint.get() + bytes);
        let (reactor, limits) = (Reactor::current(), &self.repair_limits);
        let mut until = repair.throttle.wrote(limits, bytes, begun, reactor.now());
        loop {
            if until > reactor.now() {
                reactor.sleep_until(until).await;
            }
            match repair.throttle.waits(limits, reactor.now()) {
                Some(longer) if self.repair_goes_on() && !self.is_paused() => until = longer,
                _ => return,
            }
        }
    }

    /// Makes the columns that were written durable.
    async fn flush_targets(&self, jobs: &[Job]) -> Result<()> {
        let targets = jobs.iter().flat_map(|job| &job.targets);
        let drives: BTreeSet<DriveIndex> = targets.map(|target| target.zone.0).collect();
        let flushes: Vec<_> =
            drives.into_iter().map(|drive| (drive, self.rows.drives.flush(drive))).collect();
        for (drive, flush) in flushes {
            let Some(flush) = flush else { continue };
            if let Err(error) = flush.await {
                self.link.drive_failed(drive, "a flush failed", error).await?;
            }
        }
        Ok(())
    }

    /// Lets columns that are durable in their new zones belong to their segment. False if they must not: the segment is free
    /// by now, or a drive that took one is lost.
    fn take_effect(&self, job: &Job) -> bool {
        let mut segments = self.rows.segments.borrow_mut();
        let needed = segments.needs_columns(job.segment.id, job.segment.incarnation);
        let lost = job.targets.iter().find(|target| !self.rows.drives.is_online(target.zone.0));
        if let Some(target) = lost {
            self.could_not(&gone(target.zone.0));
        }
        if !needed || lost.is_some() {
            return false;
        }
        for target in &job.targets {
            segments.move_column(job.segment.id, target.column, target.zone);
            self.repair.held.borrow_mut().remove(&target.zone);
        }
        tracing::debug!(shard = %self.identity.shard, segment = %job.segment.id, columns = job.targets.len(), "a segment was completed");
        true
    }

    /// Gives back what a job holds.
    fn give_up_job(&self, job: &Job) {
        self.rows.segments.borrow_mut().unpin(job.segment.id);
        let zones: Vec<_> = job.targets.iter().map(|target| target.zone).collect();
        zones.iter().for_each(|zone| assert!(self.repair.held.borrow_mut().remove(zone), "Z1: not held"));
        if !zones.is_empty() {
            self.link.release(zones);
        }
    }

    /// How complete everything is that a recovery could come upon (Z2); `None` if that cannot be told, or it is not whole and that
    /// is all that is asked for. Repair looks again by itself when that may have changed.
    pub(crate) async fn confirm(self: &Rc<Self>, only_whole: bool) -> Option<Completeness> {
        if self.stopping.get() {
            return None;
        }
        // Whoever stops the shard waits for the end of this.
        let _task = self.begin_task();
        self.log.arrivals().await;
        // Segments that are free already do not count: no checkpoint that begins now speaks of them.
        let look = || (self.rows.segments.borrow().version(), self.completeness());
        let (version, before) = look();
        let worth = before.is_whole() || !only_whole;
        let confirmed = worth && self.checkpoint(None).await.is_ok() && look() == (version, before);
        if !confirmed {
            // A segment that came meanwhile is there to be found; without a checkpoint there is nothing to do before the next one.
            self.repair.unconfirmed.set(true);
            self.repair.told.set(None);
            if only_whole && !look().1.is_whole() {
                self.repair_soon();
            }
        }
        confirmed.then_some(before)
    }

    /// Waits until nothing that was begun before touches a drive that is lost: it may come back then.
    pub(crate) async fn let_go_of(&self, drive: DriveIndex) {
        self.log.settle().await;
        let holds = || self.repair.held.borrow().iter().any(|(on, _)| *on == drive);
        self.repair.changed.until(|| (!holds()).then_some(())).await;
    }

    /// These drives, and no others, are to be emptied.
    pub(crate) fn set_leaving(&self, leaving: &[DriveIndex]) {
        self.rows.drives.set_leaving(leaving);
        self.repair_soon();
    }
}
