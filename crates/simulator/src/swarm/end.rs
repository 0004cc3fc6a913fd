//! The end of a life: everything is deleted, and nothing may be left behind.

use std::rc::Rc;
use std::time::Duration;

use engine::Pool;
use reactor::Reactor;

use super::Life;
use crate::run::{Ended, judge};

impl Life {
    /// Deletes everything and looks for what is left behind.
    pub(super) fn end(self: Rc<Self>) -> Result<(), String> {
        let life = self.clone();
        let ended = self.machine.boot(async move || {
            let pool = life.clone().open_and_verify().await?;
            let volumes: Vec<String> = life.volumes.borrow().keys().cloned().collect();
            let mut names: Vec<String> = life.snapshots.borrow().keys().cloned().collect();
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
                    return Err(format!("deleted volumes are never gone: {space:?}"));
                }
                Reactor::current().sleep(Duration::from_millis(1)).await;
            }
            pool.wait_for_repair().await.map_err(|error| format!("repair: {error:?}"))?;
            for _ in 0..2 {
                pool.checkpoint().await.map_err(|error| format!("checkpoint: {error:?}"))?;
            }
            let taken = taken(&pool).await?;
            pool.close().await.map_err(|error| format!("close: {error:?}"))?;
            Ok(taken)
        });
        let taken = match ended {
            Ended::Done(result) => result?,
            Ended::Cut => return Err("the end ran into a power cut".into()),
        };
        self.machine.kill();
        let report = self.machine.check().map_err(|error| format!("check: {error:?}"))?;
        judge(&report, &self.victims.borrow())?;
        if report.data_blocks > 0 || report.volumes > 0 {
            return Err(format!("everything was deleted, and {} blocks are left", report.data_blocks));
        }
        // Per shard: the open segments of each class and the spare, and those that hold the last two checkpoints. What else is in use
        // holds what lives without volumes: the event log, nodes of the map, tables.
        let shards = u64::from(self.plan.setup.shards);
        self.say(|| {
            let (empty, all) = (report.empty_segments, report.segments);
            format!("left with {shards} shards: {all} segments, {empty} of them empty; zones of {taken}")
        });
        if report.empty_segments > shards * 10 {
            let (empty, all) = (report.empty_segments, report.segments);
            return Err(format!(
                "everything was deleted, and {empty} of {all} segments are in use and empty"
            ));
        }
        // Before the pool was closed there may have been as many empty ones; but no zones that columns have left.
        if taken > report.segments + shards * 10 {
            let all = report.segments;
            return Err(format!(
                "everything was deleted, and zones of {taken} segments are taken, for {all}"
            ));
        }
        Ok(())
    }
}

/// How many segments the zones that are taken would make.
async fn taken(pool: &Pool) -> Result<u64, String> {
    let status = pool.status().await.map_err(|error| format!("status: {error:?}"))?;
    Ok((status.space.zones - status.space.free_zones).div_ceil(status.scheme.width().into()))
}
