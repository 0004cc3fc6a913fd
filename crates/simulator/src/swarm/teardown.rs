//! The end of a run: deletes everything and checks that no space stays in use.

use std::rc::Rc;
use std::time::Duration;

use engine::{ErrorKind, Pool};
use format::DriveState;
use reactor::Reactor;

use super::SwarmRun;
use crate::run::{BootEnd, check_findings};

/// The result of an attempt to delete everything.
enum Teardown {
    /// Everything is deleted; the allocated zones would form this many segments.
    Deleted(u64),
    /// The pool lacks a drive, and found no space for a deletion.
    NoSpaceDegraded(String),
}

impl SwarmRun {
    /// Deletes everything and checks for leaked space. A pool of tiny segments that lacks a drive
    /// may be too full for a deletion: then all drives must return first (S4).
    pub(super) fn delete_everything(self: Rc<Self>) -> Result<(), String> {
        let taken = match self.clone().try_delete_everything()? {
            Teardown::Deleted(taken) => taken,
            Teardown::NoSpaceDegraded(refusal) => {
                self.trace(|| format!("{refusal}; all drives return"));
                self.count(|stats| stats.full_degraded += 1);
                for victim in self.victims.borrow().iter() {
                    if let Some(disk) = self.machine.disks.get(*victim) {
                        disk.plug_in();
                    }
                    if let Some(absent) = self.machine.absent.borrow_mut().get_mut(*victim) {
                        *absent = false;
                    }
                }
                match self.clone().try_delete_everything()? {
                    Teardown::Deleted(taken) => taken,
                    Teardown::NoSpaceDegraded(refusal) => return Err(format!("{refusal}, with all drives")),
                }
            }
        };
        self.check_remains(taken)
    }

    /// Deletes everything; returns the number of segments that the allocated zones would form.
    fn try_delete_everything(self: Rc<Self>) -> Result<Teardown, String> {
        let run = self.clone();
        let ended = self.machine.boot(async move || {
            let pool = run.clone().open_and_verify().await?;
            let volumes: Vec<String> = run.volumes.borrow().keys().cloned().collect();
            let mut names: Vec<String> = run.snapshots.borrow().keys().cloned().collect();
            names.extend(volumes);
            for name in names {
                match pool.delete_volume(&name).await {
                    Ok(()) => {
                        run.volumes.borrow_mut().remove(&name);
                        run.snapshots.borrow_mut().remove(&name);
                    }
                    Err(error) if error.kind() == ErrorKind::NoSpace && lacks_drive(&pool).await? => {
                        let refusal = format!("delete {name}: {error:?}");
                        pool.close().await.map_err(|error| format!("close: {error:?}"))?;
                        return Ok(Teardown::NoSpaceDegraded(refusal));
                    }
                    Err(error) => return Err(format!("delete {name}: {error:?}")),
                }
            }
            let mut rounds = 0;
            while !pool.volumes().await.map_err(|error| format!("list: {error:?}"))?.is_empty() {
                rounds += 1;
                if rounds > 100_000 {
                    let refusal = "deleted volumes are never freed";
                    if lacks_drive(&pool).await? {
                        pool.close().await.map_err(|error| format!("close: {error:?}"))?;
                        return Ok(Teardown::NoSpaceDegraded(refusal.into()));
                    }
                    let space = pool.status().await.map_err(|error| format!("status: {error:?}"))?.space;
                    return Err(format!("{refusal}: {space:?}"));
                }
                Reactor::current().sleep(Duration::from_millis(1)).await;
            }
            pool.wait_for_repair().await.map_err(|error| format!("repair: {error:?}"))?;
            for _ in 0..2 {
                pool.checkpoint().await.map_err(|error| format!("checkpoint: {error:?}"))?;
            }
            let taken = segments_allocated(&pool).await?;
            pool.close().await.map_err(|error| format!("close: {error:?}"))?;
            Ok(Teardown::Deleted(taken))
        });
        self.machine.kill_process();
        match ended {
            BootEnd::Completed(result) => result,
            BootEnd::PowerCut => Err("unexpected power cut while everything was deleted".into()),
        }
    }

    /// Checks that the pool on the drives has no remains of deleted volumes.
    fn check_remains(&self, taken: u64) -> Result<(), String> {
        let report = self.machine.check().map_err(|error| format!("check: {error:?}"))?;
        check_findings(&report, &self.victims.borrow())?;
        if report.data_blocks > 0 || report.volumes > 0 {
            return Err(format!("{} live blocks remain after everything was deleted", report.data_blocks));
        }
        // Each shard may keep the open segments of each class, the segment opened ahead, and the
        // segments of the last two checkpoints. The other segments in use hold data without
        // volumes: the event log, map nodes, tables.
        let shards = u64::from(self.plan.setup.shards);
        self.trace(|| {
            let (empty, all) = (report.empty_segments, report.segments);
            format!("remaining with {shards} shards: {all} segments, {empty} of them empty; zones of {taken} segments")
        });
        if report.empty_segments > shards * 10 {
            let (empty, all) = (report.empty_segments, report.segments);
            return Err(format!("{empty} of {all} segments in use are empty after everything was deleted"));
        }
        // As many empty segments may have existed before the close, but no zones without a segment.
        if taken > report.segments + shards * 10 {
            let all = report.segments;
            return Err(format!(
                "zones of {taken} segments are allocated for {all} segments after everything was deleted"
            ));
        }
        Ok(())
    }
}

/// Returns true if a drive of the pool is lost or incomplete.
async fn lacks_drive(pool: &Pool) -> Result<bool, String> {
    let status = pool.status().await.map_err(|error| format!("status: {error:?}"))?;
    let is_lacking = |state| !matches!(state, DriveState::Online | DriveState::Removed);
    Ok(status.drives.iter().any(|drive| is_lacking(drive.state)))
}

/// Returns the number of segments that the allocated zones would form.
async fn segments_allocated(pool: &Pool) -> Result<u64, String> {
    let status = pool.status().await.map_err(|error| format!("status: {error:?}"))?;
    Ok((status.space.zones - status.space.free_zones).div_ceil(status.scheme.width().into()))
}
