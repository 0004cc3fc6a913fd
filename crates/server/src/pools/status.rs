//! How a pool is, as the API tells it.

use std::sync::Arc;

use engine::{PoolStatus, RepairLimits, RepairState, RepairStatus, ShardCounters, VolumeInfo};
use format::DriveState as Engine;
use format::limits::BLOCK_BYTES;

use super::slot::{Slot, Status};
use super::watch::percent_taken;
use super::{OpenPool, Pools, no_pool};
use crate::error::{Error, Result};
use crate::sizes::Size;
use crate::wire::{self, Counters, DriveState, Health, Pool, PoolDrive, PoolState, Problem, Repair, Space};

impl Pools {
    /// All pools, by name.
    ///
    /// # Errors
    /// When the daemon is shutting down.
    pub(crate) async fn list(&self) -> Result<Vec<Pool>> {
        let mut pools = Vec::new();
        for name in self.names() {
            match self.status(&name).await {
                Ok(pool) => pools.push(pool),
                // Destroyed since.
                Err(error) if error.kind() == crate::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(pools)
    }

    /// One pool.
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
                let (shown, status) = of_open(shown, &open, &self.warn_at).await?;
                if let Some(status) = status {
                    self.let_go(name, &open, &status).await;
                }
                Ok(shown)
            }
        }
    }
}

/// What is known of a pool without asking it.
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
    };
    let (state, doing, error) = match &slot.status {
        Status::Open(_) => (PoolState::Open, None, None),
        Status::Changing(doing) => (PoolState::Changing, Some((*doing).to_owned()), None),
        Status::Closed => (PoolState::Closed, None, None),
        Status::Unavailable(error) => (PoolState::Unavailable, None, Some(error.clone())),
    };
    Pool {
        name: name.to_owned(),
        id: slot.id.clone(),
        state,
        doing,
        health: if error.is_some() { Health::Failed } else { Health::Unknown },
        problems: error.iter().map(|error| unavailable(name, error)).collect(),
        scheme: None,
        shards: None,
        space: None,
        repair: None,
        drives: slot.drives.iter().map(drive).collect(),
        opened: None,
        counters: None,
        error,
    }
}

fn unavailable(name: &str, error: &Error) -> Problem {
    let action = match error.hint_text() {
        Some(hint) => format!("{hint}; then 'gabion pool open {name}'"),
        None => format!("'gabion pool open {name}' tries again"),
    };
    Problem { message: format!("nothing is served: {error}"), action }
}

async fn of_open(shown: Pool, open: &Arc<OpenPool>, warn_at: &[u8]) -> Result<(Pool, Option<PoolStatus>)> {
    let look = |pool: engine::Pool| async move {
        let status = pool.status().await?;
        // The pool serves reads without its catalogue; then nothing is known of its volumes.
        let volumes = pool.volumes().await.ok();
        Ok((status, volumes, pool.repair_limits()))
    };
    let (status, volumes, limits) = match open.call(look).await {
        Ok(found) => found,
        // It is being closed this very moment.
        Err(error) if error.kind() == crate::ErrorKind::NotOpen => return Ok((shown, None)),
        Err(error) => return Err(error),
    };
    let space = space_of(&status, volumes.as_deref().unwrap_or_default());
    let problems = problems_of(&status, &space, warn_at);
    let health = if status.failure.is_some() {
        Health::Failed
    } else if !misses_something(&status) {
        Health::Healthy
    } else if status.repair.state == RepairState::Working {
        Health::Rebuilding
    } else {
        Health::Degraded
    };
    let pool = Pool {
        id: Some(status.id.to_string()),
        health,
        problems,
        scheme: Some(status.scheme.to_string()),
        shards: Some(status.shards.len() as u64),
        space: Some(space),
        repair: Some(repair_shown(&status.repair, limits)),
        drives: drives_of(&status),
        opened: Some(open.report.clone()),
        counters: Some(sum(&status.shards)),
        ..shown
    };
    Ok((pool, Some(status)))
}

/// True if segments may miss columns.
fn misses_something(status: &PoolStatus) -> bool {
    status.drives.iter().any(|drive| drive.state.counts_as_lost())
}

fn repair_shown(repair: &RepairStatus, limits: RepairLimits) -> Repair {
    let state = match repair.state {
        RepairState::Whole => wire::RepairState::Idle,
        RepairState::Working => wire::RepairState::Working,
        RepairState::Paused => wire::RepairState::Paused,
        RepairState::NeedsDrive => wire::RepairState::NeedsDrive,
        RepairState::NeedsSpace => wire::RepairState::NeedsSpace,
        RepairState::Lost => wire::RepairState::Lost,
    };
    let whole = repair.state == RepairState::Whole;
    let all = repair.bytes_done + repair.bytes_left;
    Repair {
        state,
        left: repair.bytes_left,
        done: repair.bytes_done,
        percent: if whole { 100 } else { (repair.bytes_done * 100).checked_div(all).unwrap_or(0).min(99) },
        bytes_per_second: repair.bytes_per_second,
        seconds_left: repair.seconds_left(),
        damaged_rows: repair.damaged_rows,
        paused: limits.paused,
        limit: limits.bytes_per_second,
    }
}

fn drives_of(status: &PoolStatus) -> Vec<PoolDrive> {
    let state = |state| match state {
        Engine::Online => DriveState::Online,
        Engine::Missing => DriveState::Missing,
        Engine::Failed => DriveState::Failed,
        Engine::Removed => DriveState::Removed,
        Engine::Leaving => DriveState::Leaving,
        Engine::Returning => DriveState::Returning,
    };
    let drive = |drive: &engine::DriveStatus| PoolDrive {
        pool: status.name.clone(),
        index: Some(drive.index),
        id: Some(drive.id.to_string()),
        path: drive.path.clone(),
        size: Some(drive.size),
        used: Some(u64::from(drive.zones - drive.free_zones.min(drive.zones)) * status.zone_bytes),
        state: state(drive.state),
        read_errors: Some(drive.read_errors),
    };
    status.drives.iter().map(drive).collect()
}

fn space_of(status: &PoolStatus, volumes: &[VolumeInfo]) -> Space {
    let counters = status.space;
    Space {
        raw: counters.zones * status.zone_bytes,
        capacity: counters.capacity_blocks * BLOCK_BYTES,
        free: counters.capacity_blocks.saturating_sub(counters.live_blocks + counters.promised_blocks)
            * BLOCK_BYTES,
        reserve: status.data_bytes(u64::from(counters.reserve_segments)),
        promised: counters.promised_blocks * BLOCK_BYTES,
        stored: volumes.iter().map(|volume| volume.stored).sum(),
        provisioned: volumes.iter().map(|volume| volume.size).sum(),
        volumes: volumes.len() as u64,
    }
}

fn sum(shards: &[ShardCounters]) -> Counters {
    let mut sum = Counters::default();
    for shard in shards {
        sum.user_blocks += shard.log.user_blocks;
        sum.map_blocks += shard.log.map_blocks;
        sum.moved_blocks += shard.log.moved_blocks;
        sum.header_blocks += shard.log.header_blocks;
        sum.padding_blocks += shard.log.padding_blocks;
        sum.parity_blocks += shard.log.parity_blocks;
        sum.records += shard.log.records;
        sum.checkpoints += shard.checkpoints;
        sum.repaired_blocks += shard.repaired_blocks;
        sum.map_bytes += shard.map_nodes * BLOCK_BYTES;
        sum.map_dirty_bytes += shard.dirty_nodes * BLOCK_BYTES;
        sum.freeing_blocks += shard.log.freeing_blocks;
        sum.segments_by_fullness.resize(shard.segments.len(), 0);
        sum.segments_by_fullness.iter_mut().zip(&shard.segments).for_each(|(sum, count)| *sum += *count);
    }
    let own = sum.map_blocks + sum.freeing_blocks + sum.moved_blocks + sum.header_blocks;
    let all = sum.user_blocks + own + sum.padding_blocks + sum.parity_blocks;
    #[allow(clippy::cast_precision_loss)]
    let amplification = all as f64 / sum.user_blocks as f64;
    sum.write_amplification = (sum.user_blocks > 0).then_some(amplification);
    sum
}

/// What is wrong with a pool in service, worst first: what it means, and what to do.
fn problems_of(status: &PoolStatus, space: &Space, warn_at: &[u8]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let name = &status.name;
    if let Some(failure) = &status.failure {
        problems.push(Problem {
            message: format!("writes are refused: {failure}. What was flushed before is safe on the drives"),
            action: format!(
                "find out why the drives were lost ('dmesg', power, cables), bring them back, then 'gabion pool close \
                 {name} --force' and 'gabion pool open {name}'"
            ),
        });
    }
    problems.extend(lost_drives(status));
    problems.extend(returning_drives(status));
    problems.extend(leaving_drives(status));
    for drive in status.drives.iter().filter(|drive| drive.state.is_in_use() && drive.read_errors > 0) {
        problems.push(Problem {
            message: format!(
                "drive {} ({}) failed or garbled {} reads since the pool was opened; the other drives gave the data back",
                drive.index, drive.path, drive.read_errors
            ),
            action: format!(
                "look at 'smartctl -a {0}' and 'dmesg'; if it goes on, replace it: 'gabion drive replace {name} {1} \
                 --with DRIVE', or 'gabion drive remove {name} {1}' if the others have room",
                drive.path, drive.index
            ),
        });
    }
    if space.free == 0 {
        problems.push(Problem {
            message: "the pool is full: writes that need more room fail; overwriting, reads, trims and deletes go on".into(),
            action: format!(
                "trim in the guests ('fstrim -av'), delete volumes or snapshots ('gabion volume list {name} --snapshots'), or \
                 add a drive: 'gabion drive add {name} DRIVE'"
            ),
        });
    } else if let Some(threshold) = warn_at.iter().filter(|at| percent_taken(space) >= **at).max() {
        let kept = if space.promised > 0 {
            format!(", {} of that kept for thick volumes", Size(space.promised))
        } else {
            String::new()
        };
        problems.push(Problem {
            message: format!(
                "the pool fills up: {} of {} are free, {} % are taken{kept}, and daemon.warn_at says to tell from {threshold} % on",
                Size(space.free),
                Size(space.capacity),
                percent_taken(space)
            ),
            action: format!(
                "trim in the guests ('fstrim -av'), delete volumes or snapshots ('gabion volume list {name} --snapshots'), or \
                 add a drive: 'gabion drive add {name} DRIVE'"
            ),
        });
    }
    problems
}

fn lost_drives(status: &PoolStatus) -> Option<Problem> {
    let lost: Vec<String> = status
        .drives
        .iter()
        .filter(|drive| matches!(drive.state, Engine::Missing | Engine::Failed))
        .map(|drive| format!("{} ({})", drive.index, drive.path))
        .collect();
    if lost.is_empty() {
        return None;
    }
    let left = usize::from(status.scheme.parity()).saturating_sub(lost.len());
    let risk = match left {
        0 => "the next loss of a drive stops the pool and loses data".to_owned(),
        1 => "the pool bears the loss of one more".to_owned(),
        more => format!("the pool bears the loss of {more} more"),
    };
    let (drives, are) = if lost.len() == 1 { ("drive", "is") } else { ("drives", "are") };
    let numbers: Vec<u16> =
        status.drives.iter().filter(|drive| drive.state.is_lost()).map(|drive| drive.index).collect();
    Some(Problem {
        message: format!("{drives} {} {are} lost: all data is still served, and {risk}", lost.join(", ")),
        action: format!(
            "{}. Look at 'dmesg' and 'smartctl' for why it was lost",
            repair_of(status, &numbers)
        ),
    })
}

fn listed(status: &PoolStatus, state: Engine) -> Vec<String> {
    let those = status.drives.iter().filter(|drive| drive.state == state);
    those.map(|drive| format!("{} ({})", drive.index, drive.path)).collect()
}

fn returning_drives(status: &PoolStatus) -> Option<Problem> {
    let back = listed(status, Engine::Returning);
    (!back.is_empty()).then(|| Problem {
        message: format!("drive {} was lost and is back: what it missed is not there yet", back.join(", ")),
        action: repair_of(status, &[]),
    })
}

/// Drives that are to be emptied and are not: while that goes on, there is nothing wrong.
fn leaving_drives(status: &PoolStatus) -> Option<Problem> {
    let leaving = listed(status, Engine::Leaving);
    let stuck = !matches!(status.repair.state, RepairState::Working | RepairState::Whole);
    (!leaving.is_empty() && stuck).then(|| Problem {
        message: format!("drive {} is to be emptied, and that does not go on", leaving.join(", ")),
        action: repair_of(status, &[]),
    })
}

/// What becomes of the columns that are missing or to be moved; `lost` are the numbers of drives that are lost.
fn repair_of(status: &PoolStatus, lost: &[u16]) -> String {
    let (repair, name) = (&status.repair, &status.name);
    let (left, all) = (Size(repair.bytes_left), Size(repair.bytes_left + repair.bytes_done));
    match repair.state {
        RepairState::Whole => "everything is on the other drives: nothing is to be done".into(),
        RepairState::Working => {
            format!("wait: it is being written to other drives, {left} of {all} are left")
        }
        RepairState::Paused => {
            format!(
                "'gabion pool repair {name} --resume': repair is paused with {left} to be written to other drives"
            )
        }
        RepairState::NeedsSpace => format!(
            "delete or trim data, or add a drive ('gabion drive add {name} DRIVE'): the others have no room for {left}"
        ),
        RepairState::NeedsDrive => {
            let number = lost.first().map_or("N".into(), u16::to_string);
            format!(
                "if it can be plugged in again, 'gabion drive return {name} {number}'; else 'gabion drive replace {name} {number} \
                 --with DRIVE': the others hold everything already, and {left} need another drive"
            )
        }
        RepairState::Lost => {
            "restore what is damaged from a backup: more was lost than the scheme bears".into()
        }
    }
}
