//! A batch of segments that miss columns: allocates zones on drives that the segment does not use,
//! writes the columns there, flushes, and changes the segments in memory.
//!
//! Always true: a segment changes only after its new columns are flushed (Z3); held zones belong to
//! a job, which assigns them to its segment or releases them. Segments are pinned only while they
//! are read: a batch may take long, and checkpoints rely on the segments that the cleaner empties
//! meanwhile (S4).

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use format::limits::BLOCK_BYTES;
use format::{Column, DriveIndex, Row};
use reactor::{Reactor, Semaphore};
use smallvec::SmallVec;

use super::{RepairQueue, Repairer};
use crate::control_link::ZoneGrant;
use crate::error::Result;
use crate::repair::RepairState;
use crate::segments::Incomplete;
use crate::shard::Shard;
use crate::shard::rebuild::{ColumnTarget, Rebuild, RebuildJob, target_failed};

/// Maximum number of segments rebuilt concurrently.
const JOBS_MAX: usize = 4;
/// Maximum number of segments of a batch, which are flushed together.
const BATCH_JOBS: usize = 64;
/// Bytes after which a batch is complete.
const BATCH_BYTES: u64 = 256 << 20;
/// Duration after which a batch is complete, if the rate of repair is limited.
const BATCH_TIME: Duration = Duration::from_secs(2);
/// Bytes written after which a checkpoint persists them: a crash makes repair repeat at most this
/// much, and a batch.
const CHECKPOINT_BYTES: u64 = 1 << 30;

impl Repairer {
    /// Returns the segments to complete next, with zones for their columns; adds the reasons that
    /// block others to `obstacles`.
    pub(super) async fn plan_batch(
        &self,
        shard: &Shard,
        waiting: &mut RepairQueue,
        obstacles: &mut BTreeSet<RepairState>,
    ) -> Result<Vec<RebuildJob>> {
        let (mut jobs, mut bytes) = (Vec::new(), 0);
        // Jobs hold zones, so only a batch that can be done soon is planned.
        let bytes_max = self.limits.bytes_within(BATCH_TIME).min(BATCH_BYTES);
        while jobs.len() < BATCH_JOBS && bytes < bytes_max && !obstacles.contains(&RepairState::NeedsSpace) {
            let Some((id, incarnation)) = waiting.pop_front() else { break };
            let use_of = |drive| shard.rows.drives.use_of(drive);
            let found = shard.rows.segments.borrow().recheck_incomplete(id, incarnation, use_of);
            let Some(segment) = found else { continue };
            if segment.missing.len() > usize::from(segment.scheme.parity()) {
                obstacles.insert(RepairState::Lost);
                continue;
            }
            if !segment.stable {
                obstacles.extend(self.seal_obstacle(shard, &segment));
                continue;
            }
            let mut job = RebuildJob { segment, targets: SmallVec::new() };
            let found = self.find_zones(shard, &mut job, obstacles).await;
            if job.targets.is_empty() || found.is_err() {
                self.release_job(shard, &job);
            } else {
                bytes += job.bytes();
                jobs.push(job);
            }
            if let Err(error) = found {
                jobs.iter().for_each(|job| self.release_job(shard, job));
                return Err(error);
            }
        }
        Ok(jobs)
    }

    /// Returns why a segment cannot be sealed: its successor would miss columns too. `None` if its
    /// records only have to be applied and flushed.
    fn seal_obstacle(&self, shard: &Shard, segment: &Incomplete) -> Option<RepairState> {
        let is_open = shard.rows.segments.borrow().is_open(segment.id);
        if shard.rows.drives.active_count() < usize::from(segment.scheme.width()) {
            is_open.then_some(RepairState::NeedsDrive)
        } else {
            (is_open && !shard.log.appender.can_replace_incomplete()).then_some(RepairState::NeedsSpace)
        }
    }

    /// Allocates zones for the columns of a job, as far as possible; adds the reasons that block
    /// the others to `obstacles`.
    async fn find_zones(
        &self,
        shard: &Shard,
        job: &mut RebuildJob,
        obstacles: &mut BTreeSet<RepairState>,
    ) -> Result<()> {
        for column in job.segment.wanted() {
            let avoid = job.segment.avoid(column).chain(job.targets.iter().map(|target| target.zone.0));
            match shard.link.allocate_one(avoid.collect()).await? {
                ZoneGrant::Zone(zone) => {
                    self.held.borrow_mut().insert(zone);
                    job.targets.push(ColumnTarget { column, zone });
                }
                ZoneGrant::NoSpace => _ = obstacles.insert(RepairState::NeedsSpace),
                ZoneGrant::NoDrive => _ = obstacles.insert(RepairState::NeedsDrive),
            }
        }
        Ok(())
    }

    /// Writes the columns of all jobs, and assigns the durable columns to their segments.
    pub(super) async fn run_batch(&self, shard: &Rc<Shard>, jobs: Vec<RebuildJob>) -> Result<()> {
        let permits = Semaphore::new(JOBS_MAX);
        let mut tasks = Vec::new();
        for job in jobs {
            let (shard, permits) = (shard.clone(), permits.clone());
            let task = async move {
                let _permit = permits.acquire().await;
                let written = shard.repair.run_job(&shard, &job).await;
                (job, written)
            };
            tasks.push(Reactor::current().spawn(task));
        }
        let (mut written, mut result) = (Vec::new(), Ok(()));
        for task in tasks {
            match task.await {
                (job, Ok(true)) => written.push(job),
                (job, Ok(false)) => self.release_job(shard, &job),
                (job, Err(error)) => {
                    self.release_job(shard, &job);
                    tracing::warn!(shard = %shard.identity.shard, segment = %job.segment.id, %error, "segment not completed");
                    result = shard.log.failure().map_or(Ok(()), Err);
                }
            }
        }
        let flushed = self.flush_targets(shard, &written).await;
        for job in written {
            if flushed.is_err() || !self.commit_columns(shard, &job) {
                self.release_job(shard, &job);
            }
        }
        self.changed.wake_all();
        if self.since_checkpoint.get() >= CHECKPOINT_BYTES {
            self.since_checkpoint.set(0);
            shard.log.checkpoints.request();
        }
        flushed.and(result)
    }

    /// Writes the columns of one segment; returns false if they are not needed any more, or repair
    /// stops.
    async fn run_job(&self, shard: &Shard, job: &RebuildJob) -> Result<bool> {
        if !self.is_needed(shard, job) {
            return Ok(false);
        }
        let _pin = shard.rows.pin(job.segment.id);
        self.write_columns(shard, job).await
    }

    fn is_needed(&self, shard: &Shard, job: &RebuildJob) -> bool {
        shard.rows.segments.borrow().needs_columns(job.segment.id, job.segment.incarnation)
    }

    /// Like [`Repairer::run_job`], with the segment pinned.
    async fn write_columns(&self, shard: &Shard, job: &RebuildJob) -> Result<bool> {
        let record = shard.rows.segments.borrow().record(job.segment.id);
        let mut rebuild = Rebuild::new(shard, job, &record);
        let mut row = 0;
        while row < job.segment.rows {
            // A paused repair holds no zones: the segment starts over later.
            if !self.is_needed(shard, job) || shard.has_ended() || self.is_paused() {
                return Ok(false);
            }
            let may_proceed = || !shard.has_ended() && !self.is_paused();
            let permit = self.throttle.acquire(&self.limits, may_proceed).await;
            let Some(permit) = permit else { continue };
            let count = job.piece_rows(&permit).min(job.segment.rows - row);
            rebuild.write_rows(Row::new(row), count).await?;
            row += count;
            let bytes = u64::from(count) * job.targets.len() as u64 * BLOCK_BYTES;
            self.count_written(bytes);
            permit.finish(bytes);
        }
        shard.report_gone_drives().await;
        self.mark_damage_found(shard, job, &rebuild);
        if rebuild.damaged_rows > 0 {
            self.damaged.set(self.damaged.get() + rebuild.damaged_rows);
            tracing::error!(shard = %shard.identity.shard, segment = %job.segment.id, rows = rebuild.damaged_rows, "rows cannot be reconstructed: too many of their cells are damaged");
        }
        Ok(true)
    }

    /// Marks columns in which damage was found, so that they are rewritten without waiting for a
    /// scrub.
    fn mark_damage_found(&self, shard: &Shard, job: &RebuildJob, rebuild: &Rebuild<'_>) {
        for column in rebuild.damaged_columns.iter() {
            tracing::warn!(shard = %shard.identity.shard, segment = %job.segment.id, column, "column damaged: it will be rewritten");
            shard.rows.segments.borrow_mut().mark_damaged(job.segment.id, Column::new(column));
        }
    }

    fn count_written(&self, bytes: u64) {
        self.done.set(self.done.get() + bytes);
        self.left.set(self.left.get().saturating_sub(bytes));
        self.since_checkpoint.set(self.since_checkpoint.get() + bytes);
    }

    /// Flushes the target drives of these jobs.
    async fn flush_targets(&self, shard: &Shard, jobs: &[RebuildJob]) -> Result<()> {
        let targets = jobs.iter().flat_map(|job| &job.targets);
        let drives: BTreeSet<DriveIndex> = targets.map(|target| target.zone.0).collect();
        let flushes: Vec<_> =
            drives.into_iter().map(|drive| (drive, shard.rows.drives.flush(drive))).collect();
        // All flushes complete before a failure is reported, which may fail the pool (D2).
        let mut failed = Vec::new();
        for (drive, flush) in flushes {
            if let Some(flush) = flush
                && let Err(error) = flush.await
            {
                failed.push((drive, error));
            }
        }
        for (drive, error) in failed {
            shard.link.drive_failed(drive, "a flush failed", error).await?;
        }
        Ok(())
    }

    /// Assigns the durable columns of a job to its segment. Returns false if the segment was freed,
    /// or a target drive failed.
    fn commit_columns(&self, shard: &Shard, job: &RebuildJob) -> bool {
        let lost = job.targets.iter().find(|target| !shard.rows.drives.is_online(target.zone.0));
        if let Some(target) = lost {
            self.log_error(shard, &target_failed(target.zone.0));
        }
        if lost.is_some() || !self.is_needed(shard, job) {
            return false;
        }
        let mut segments = shard.rows.segments.borrow_mut();
        for target in &job.targets {
            segments.move_column(job.segment.id, target.column, target.zone);
            self.held.borrow_mut().remove(&target.zone);
        }
        tracing::debug!(shard = %shard.identity.shard, segment = %job.segment.id, columns = job.targets.len(), "segment completed");
        true
    }

    /// Releases the zones of a job.
    fn release_job(&self, shard: &Shard, job: &RebuildJob) {
        let zones: Vec<_> = job.targets.iter().map(|target| target.zone).collect();
        zones.iter().for_each(|zone| assert!(self.held.borrow_mut().remove(zone), "Z1: not held"));
        if !zones.is_empty() {
            shard.link.release(zones);
        }
    }
}
