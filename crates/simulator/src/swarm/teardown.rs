//! The end of a run: deletes everything and checks that no space stays in use.

use std::rc::Rc;
use std::time::Duration;

use engine::Pool;
use reactor::Reactor;

use super::SwarmRun;
use crate::run::{BootEnd, check_findings};

impl SwarmRun {
    /// Deletes everything and checks for leaked space.
    pub(super) fn delete_everything(self: Rc<Self>) -> Result<(), String> {
        let run = self.clone();
        let ended = self.machine.boot(async move || {
            let pool = run.clone().open_and_verify().await?;
            let volumes: Vec<String> = run.volumes.borrow().keys().cloned().collect();
            let mut names: Vec<String> = run.snapshots.borrow().keys().cloned().collect();
            names.extend(volumes);
            for name in names {
                match pool.delete_volume(&name).await {
                    Ok(()) => {}
                    Err(error) => return Err(format!("delete {name}: {error:?}")),
                }
            }
            let mut rounds = 0;
            while !pool.volumes().await.map_err(|error| format!("list: {error:?}"))?.is_empty() {
                rounds += 1;
                if rounds > 100_000 {
                    let space = pool.status().await.map_err(|error| format!("status: {error:?}"))?.space;
                    return Err(format!("deleted volumes are never freed: {space:?}"));
                }
                Reactor::current().sleep(Duration::from_millis(1)).await;
            }
            pool.wait_for_repair().await.map_err(|error| format!("repair: {error:?}"))?;
            for _ in 0..2 {
                pool.checkpoint().await.map_err(|error| format!("checkpoint: {error:?}"))?;
            }
            let taken = segments_allocated(&pool).await?;
            pool.close().await.map_err(|error| format!("close: {error:?}"))?;
            Ok(taken)
        });
        let taken = match ended {
            BootEnd::Completed(result) => result?,
            BootEnd::PowerCut => return Err("unexpected power cut while everything was deleted".into()),
        };
        self.machine.kill_process();
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

/// Returns the number of segments that the allocated zones would form.
async fn segments_allocated(pool: &Pool) -> Result<u64, String> {
    let status = pool.status().await.map_err(|error| format!("status: {error:?}"))?;
    Ok((status.space.zones - status.space.free_zones).div_ceil(status.scheme.width().into()))
}
