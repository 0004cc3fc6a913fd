//! The status of a pool for the API.

use std::sync::Arc;
use std::time::Duration;

use engine::{
    PoolStatus, RepairLimits, RepairState, RepairStatus, ShardCounters, VolumeTotals, WriteWaitCounts,
};
use format::DriveState as Engine;
use format::limits::BLOCK_BYTES;

use super::problems::{misses_columns, problems_of};
use super::scrub;
use super::slot::{Slot, Status};
use super::{OBJECTS_VOLUME, OpenPool, Pools, no_pool};
use crate::error::{Error, Result};
use api::types::{
    self, DriveState, Health, Pool, PoolCounters, PoolDrive, PoolSpace, PoolState, Problem, Rebuild,
    RebuildState, RecentLatency, WriteWaits,
};

impl Pools {
    /// Returns the status of all pools, by name.
    ///
    /// # Errors
    /// When the daemon is shutting down.
    pub(crate) async fn list(&self) -> Result<Vec<Pool>> {
        let mut pools = Vec::new();
        for name in self.names() {
            match self.status(&name).await {
                Ok(pool) => pools.push(pool),
                // The pool was destroyed in the meantime.
                Err(error) if error.kind() == crate::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(pools)
    }

    /// Returns the status of a pool.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) async fn status(&self, name: &str) -> Result<Pool> {
        let (shown, open) = {
            let slots = self.lock();
            let slot = slots.get(name).ok_or_else(|| no_pool(name))?;
            let open = match &slot.status {
                Status::Open(pool) => Some(pool.clone()),
                _ => None,
            };
            (of_slot(name, slot), open)
        };
        match open {
            None => Ok(shown),
            Some(open) => {
                let (mut shown, status) = of_open(shown, &open, &self.warn_at).await?;
                self.add_drive_health(&open, &mut shown);
                if let Some(status) = status {
                    self.release_removed(name, &open, &status).await;
                }
                Ok(shown)
            }
        }
    }
}

/// Returns the status of a pool that is not open.
fn of_slot(name: &str, slot: &Slot) -> Pool {
    let drive = |path: &std::path::PathBuf| PoolDrive {
        pool: name.to_owned(),
        index: None,
        id: None,
        path: path.to_string_lossy().into_owned(),
        size: None,
        used: None,
        state: DriveState::Unknown,
        read_errors: None,
        checksum_errors: None,
        last_error: None,
        failing: None,
        io: None,
        smart: None,
    };
    let (state, activity, error) = match &slot.status {
        Status::Open(_) => (PoolState::Open, None, None),
        Status::Changing(activity) => (PoolState::Changing, Some(activity.to_string()), None),
        Status::Closed => (PoolState::Closed, None, None),
        Status::Unavailable(error) => (PoolState::Unavailable, None, Some(error.clone())),
    };
    Pool {
        name: name.to_owned(),
        id: slot.id.clone(),
        state,
        activity,
        health: if error.is_some() { Health::Failed } else { Health::Unknown },
        problems: error.iter().map(|error| unavailable(name, error)).collect(),
        scheme: None,
        shards: None,
        space: None,
        rebuild: None,
        scrub: None,
        latency: None,
        drives: slot.drives.iter().map(drive).collect(),
        lost: Vec::new(),
        opened: None,
        counters: None,
        error: error.map(Into::into),
    }
}

/// Returns the sums over all volumes, of which the hidden volume of the objects adds only stored
/// data: users do not see it, and its size is an address range.
async fn shown_totals(pool: &engine::Pool) -> engine::Result<VolumeTotals> {
    let mut totals = pool.volume_totals().await?;
    if let Some(hidden) = pool.volume_info(OBJECTS_VOLUME).await? {
        totals.count = totals.count.saturating_sub(1);
        totals.provisioned = totals.provisioned.saturating_sub(hidden.size);
    }
    Ok(totals)
}

/// Returns a lost range for the API.
pub(crate) fn lost_range(range: &engine::LostRange) -> types::LostRange {
    let engine::LostRange { volume, offset, length } = range.clone();
    types::LostRange { volume, offset, length }
}

fn unavailable(name: &str, error: &Error) -> Problem {
    let action = match error.hint_text() {
        Some(hint) => format!("{hint}; then 'gabion pool open {name}'"),
        None => format!("remove the cause, then run 'gabion pool open {name}'"),
    };
    Problem { message: format!("the pool is not open: {error}"), action }
}

/// Returns the health of a pool in service.
fn health_of(status: &PoolStatus) -> Health {
    if status.failure.is_some() {
        Health::Failed
    } else if !status.lost.is_empty() || status.lost_unlisted > 0 {
        Health::DataLost
    } else if misses_columns(status) || status.damaged_columns() > 0 || status.unsaved_nodes > 0 {
        match status.repair.state {
            RepairState::Running => Health::Rebuilding,
            _ => Health::Degraded,
        }
    } else if status.drives.iter().any(|drive| drive.failing && drive.state.is_in_use()) {
        Health::DriveFailing
    } else {
        Health::Healthy
    }
}

async fn of_open(shown: Pool, open: &Arc<OpenPool>, warn_at: &[u8]) -> Result<(Pool, Option<PoolStatus>)> {
    let look = |pool: engine::Pool| async move {
        let status = pool.status().await?;
        // A pool with a damaged catalogue still serves reads; its volumes are unknown then.
        let volumes = shown_totals(&pool).await.unwrap_or_default();
        Ok((status, volumes, pool.repair_limits(), pool.scrub_limits()))
    };
    let (status, volumes, limits, scrub_limits) = match open.call(look).await {
        Ok(status) => status,
        // The pool is being closed.
        Err(error) if error.kind() == crate::ErrorKind::NotOpen => return Ok((shown, None)),
        Err(error) => return Err(error),
    };
    let space = space_of(&status, &volumes);
    let problems = problems_of(&status, &open.report, &space, warn_at, crate::unix_time::unix_time());
    let pool = Pool {
        id: Some(status.id.to_string()),
        health: health_of(&status),
        problems,
        scheme: Some(status.scheme.to_string()),
        shards: Some(status.shards.len() as u64),
        space: Some(space),
        rebuild: Some(rebuild_of(&status.repair, limits)),
        scrub: Some(scrub::scrub_of(&status.scrub, scrub_limits)),
        latency: status.client_latency.map(latency_of),
        drives: drives_of(&status),
        lost: status.lost.iter().map(lost_range).collect(),
        opened: Some(open.report.clone()),
        counters: Some(sum(&status.shards)),
        ..shown
    };
    Ok((pool, Some(status)))
}

fn rebuild_of(repair: &RepairStatus, limits: RepairLimits) -> Rebuild {
    let state = match repair.state {
        RepairState::Complete => RebuildState::Idle,
        RepairState::Running => RebuildState::Working,
        RepairState::Paused => RebuildState::Paused,
        RepairState::NeedsDrive => RebuildState::NeedsDrive,
        RepairState::NeedsSpace => RebuildState::NeedsSpace,
        RepairState::Lost => RebuildState::Lost,
    };
    let whole = repair.state == RepairState::Complete;
    let all = repair.bytes_done + repair.bytes_left;
    Rebuild {
        state,
        remaining: repair.bytes_left,
        done: repair.bytes_done,
        percent: if whole { 100 } else { (repair.bytes_done * 100).checked_div(all).unwrap_or(0).min(99) },
        bytes_per_second: repair.bytes_per_second,
        seconds_left: repair.seconds_left(),
        damaged_rows: repair.damaged_rows,
        paused: limits.paused,
        rate_limit: limits.bytes_per_second,
    }
}

fn latency_of(latency: engine::RecentLatency) -> RecentLatency {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    RecentLatency { operations: latency.operations, p50_us: micros(latency.p50), p99_us: micros(latency.p99) }
}

/// Returns the state of a drive for the API.
pub(crate) fn drive_state_of(state: Engine) -> DriveState {
    match state {
        Engine::Online => DriveState::Online,
        Engine::Missing => DriveState::Missing,
        Engine::Failed => DriveState::Failed,
        Engine::Removed => DriveState::Removed,
        Engine::Draining => DriveState::Removing,
        Engine::Returning => DriveState::Returning,
    }
}

fn drives_of(status: &PoolStatus) -> Vec<PoolDrive> {
    let drive = |drive: &engine::DriveStatus| PoolDrive {
        pool: status.name.clone(),
        index: Some(drive.index),
        id: Some(drive.id.to_string()),
        path: drive.path.clone(),
        size: Some(drive.size),
        used: Some(u64::from(drive.zones - drive.free_zones.min(drive.zones)) * status.zone_bytes),
        state: drive_state_of(drive.state),
        read_errors: Some(drive.errors.unreadable + drive.errors.wrong),
        checksum_errors: Some(drive.errors.wrong),
        last_error: Some(drive.errors.last).filter(|last| *last > 0),
        failing: Some(drive.failing),
        io: None,
        smart: None,
    };
    status.drives.iter().map(drive).collect()
}

fn space_of(status: &PoolStatus, volumes: &VolumeTotals) -> PoolSpace {
    let counters = status.space;
    PoolSpace {
        raw: counters.zones * status.zone_bytes,
        capacity: counters.capacity_blocks * BLOCK_BYTES,
        free: counters.capacity_blocks.saturating_sub(counters.live_blocks + counters.reservation_blocks)
            * BLOCK_BYTES,
        system_reserve: status.data_bytes(u64::from(counters.reserve_segments)),
        reserved: counters.reservation_blocks * BLOCK_BYTES,
        stored: volumes.stored,
        provisioned: volumes.provisioned,
        volumes: volumes.count,
    }
}

fn sum(shards: &[ShardCounters]) -> PoolCounters {
    let mut sum = PoolCounters::default();
    for shard in shards {
        sum.user_blocks += shard.log.user_blocks;
        sum.map_blocks += shard.log.map_blocks;
        sum.moved_blocks += shard.log.moved_blocks;
        sum.header_blocks += shard.log.header_blocks;
        sum.padding_blocks += shard.log.padding_blocks;
        sum.parity_blocks += shard.log.parity_blocks;
        sum.records += shard.log.records;
        sum.checkpoints += shard.checkpoints;
        sum.checkpoints_refused += shard.checkpoints_refused;
        sum.repaired_blocks += shard.repaired_blocks;
        sum.map_bytes += shard.map_nodes * BLOCK_BYTES;
        sum.map_dirty_bytes += shard.dirty_nodes * BLOCK_BYTES;
        sum.freeing_blocks += shard.log.freeing_blocks;
        sum.segments_by_fullness.resize(shard.segments.len(), 0);
        sum.segments_by_fullness.iter_mut().zip(&shard.segments).for_each(|(sum, count)| *sum += *count);
    }
    sum.write_waits = write_waits(shards);
    let own = sum.map_blocks + sum.freeing_blocks + sum.moved_blocks + sum.header_blocks;
    let all = sum.user_blocks + own + sum.padding_blocks + sum.parity_blocks;
    #[allow(clippy::cast_precision_loss)]
    let amplification = all as f64 / sum.user_blocks as f64;
    sum.write_amplification = (sum.user_blocks > 0).then_some(amplification);
    sum
}

/// Returns the writes in progress by the event that they wait for, without events of none.
fn write_waits(shards: &[ShardCounters]) -> Vec<WriteWaits> {
    let mut sum = WriteWaitCounts::default();
    shards.iter().for_each(|shard| sum.add_all(&shard.write_waits));
    let waiting = sum.iter().filter(|(_, writes)| *writes > 0);
    waiting.map(|(wait, writes)| WriteWaits { event: wait.name().to_owned(), writes }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool 4+1 without drives, whose space is half used.
    fn status(unsaved_nodes: u64) -> PoolStatus {
        PoolStatus {
            id: format::PoolId([7; 16]),
            name: "fast".into(),
            scheme: "4+1".parse().unwrap(),
            zone_bytes: 64 << 20,
            drives: Vec::new(),
            space: engine::SpaceCounters { capacity_blocks: 100, live_blocks: 50, ..Default::default() },
            shards: Vec::new(),
            repair: RepairStatus::default(),
            scrub: engine::ScrubStatus::default(),
            client_latency: None,
            lost: Vec::new(),
            lost_unlisted: 0,
            unsaved_nodes,
            unrecorded: None,
            failure: None,
        }
    }

    #[test]
    fn map_nodes_that_are_only_in_memory_degrade_a_pool() {
        let opened = serde_json::json!({"time": 0, "seconds": 0.1, "clean": true, "replayed": 0,
            "discarded": 0, "completed": 0, "missing": []});
        let opened = serde_json::from_value(opened).unwrap();
        let problems = |status: &PoolStatus| {
            problems_of(status, &opened, &space_of(status, &VolumeTotals::default()), &[], 0)
        };
        assert_eq!((health_of(&status(0)), problems(&status(0)).len()), (Health::Healthy, 0));
        let unsaved = status(12);
        assert_eq!(health_of(&unsaved), Health::Degraded);
        let [problem] = &problems(&unsaved)[..] else { panic!("{:?}", problems(&unsaved)) };
        assert!(problem.message.starts_with("12 map nodes"), "{problem:?}");
        assert!(problem.action.contains("gabion drive add fast DRIVE"), "{problem:?}");
    }
}
