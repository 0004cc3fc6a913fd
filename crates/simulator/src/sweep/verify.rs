//! Verifies the pool at the opening after a cut or failure.

use engine::{Pool, RepairState};
use format::DriveState;

use super::contents::read_last;
use super::operation::{SECTOR, SIZE};
use super::{ExpectedState, SweepOp, groups, wait_for_repair};
use crate::model::VolumeModel;
use crate::run::Machine;

/// Compares the snapshots and clones with their expected content.
async fn verify_snapshots(
    operation: SweepOp,
    pool: &Pool,
    volumes: &[engine::VolumeInfo],
    expected: &mut ExpectedState,
) -> Result<(), String> {
    let exists = |name: &str| volumes.iter().any(|info| info.name == name && !info.deleting);
    let (done, must_be, may_be) = match operation {
        SweepOp::Snapshot | SweepOp::SnapshotGroup => (expected.done, "v@during", true),
        SweepOp::Clone => (expected.done, "w", true),
        SweepOp::DeleteSnapshot | SweepOp::MergeAtLimit | SweepOp::MergeAtLimitOnShards => {
            (false, "v@before", !expected.done)
        }
        SweepOp::RollBack | SweepOp::Copy => (true, "v@before", true),
        _ => return Ok(()),
    };
    match (exists(must_be), done, may_be) {
        (false, true, _) => return Err(format!("{must_be} is missing")),
        (true, _, false) => return Err(format!("{must_be} exists after its deletion")),
        (false, ..) => return Ok(()),
        (true, ..) => {}
    }
    let Some(model) = &mut expected.snapshot else { return Ok(()) };
    let bytes = read_last(pool, must_be, model.size()).await?;
    model.adopt_after_crash(&bytes).map_err(|error| format!("{must_be}: {error}"))
}

/// Opens the pool again and compares it with the allowed states.
pub(super) async fn verify(
    operation: SweepOp,
    machine: &Machine,
    expected: &mut ExpectedState,
) -> Result<(), String> {
    let (pool, _) = machine.open().await.map_err(|error| format!("open: {error:?}"))?;
    let volumes = pool.volumes().await.map_err(|error| format!("list: {error:?}"))?;
    let find = |name: &str| volumes.iter().find(|info| info.name == name && !info.deleting);
    if operation == SweepOp::CreateVolume && expected.done && find("w").is_none() {
        return Err("a created volume is missing".into());
    }
    let deletes = matches!(operation, SweepOp::DeleteVolume | SweepOp::DeleteInUse);
    if operation == SweepOp::DeleteInUse && find("w").is_some() {
        let bytes = read_last(&pool, "w", SIZE).await?;
        VolumeModel::new(SIZE, SECTOR).adopt_after_crash(&bytes).map_err(|error| format!("w: {error}"))?;
    }
    let Some(info) = find("v") else {
        return if deletes { Ok(()) } else { Err("the volume is missing".into()) };
    };
    if deletes && expected.done {
        return Err("a deleted volume exists".into());
    }
    match (operation, info.size) {
        (SweepOp::Resize, size) if size == SIZE && !expected.done => {}
        (SweepOp::Resize, size) if size == 128 << 10 => expected.model.resize(size),
        (_, size) if operation != SweepOp::Resize && size == operation.volume_bytes() => {}
        (_, size) => return Err(format!("the volume has {size} bytes, an unexpected size")),
    }
    let bytes = read_last(&pool, "v", expected.model.size()).await?;
    let held = expected.model.adopt_after_crash(&bytes);
    match (held, expected.rollback.take()) {
        (Err(error), Some(mut rollback)) => {
            let held = rollback.adopt_after_crash(&bytes);
            held.map_err(|other| {
                format!("content is neither from before the rollback ({error}) nor from after it ({other})")
            })?;
            expected.model = rollback;
        }
        (held, _) => held?,
    }
    verify_snapshots(operation, &pool, &volumes, expected).await?;
    let exists = |name: &str| find(name).is_some();
    if operation == SweepOp::SnapshotGroup {
        groups::verify(&pool, exists("v@during"), expected).await?;
    }
    if operation == SweepOp::Rebuild {
        check_rebuilt(&pool, expected.done).await?;
    }
    if operation == SweepOp::Scrub {
        check_scrubbed(&pool, expected.done).await?;
    }
    pool.close().await.map_err(|error| format!("close: {error:?}"))
}

/// Checks that an interrupted scrub continues, and that no damage is left after a complete scrub.
async fn check_scrubbed(pool: &Pool, done: bool) -> Result<(), String> {
    let error = |operation: &str, error: engine::Error| format!("{operation}: {error:?}");
    pool.scrub_settled().await.map_err(|is| error("scrub", is))?;
    if !done {
        pool.start_scrub().await.map_err(|is| error("scrub", is))?;
        pool.scrub_settled().await.map_err(|is| error("scrub", is))?;
    }
    let scrub = wait_for_repair(pool).await?.scrub;
    if scrub.running || scrub.unhealed > 0 || scrub.last.lost > 0 {
        return Err(format!("after a scrub: {scrub:?}"));
    }
    Ok(())
}

/// Checks that an interrupted rebuild completes at the next opening, and that the lost drive is
/// then removed from the pool.
async fn check_rebuilt(pool: &Pool, done: bool) -> Result<(), String> {
    let status = wait_for_repair(pool).await?;
    let lost = status.drives.first().map(|drive| drive.state);
    // The cut may have come before the engine recorded the loss of the drive.
    let known = done || lost != Some(DriveState::Online);
    if status.repair.state != RepairState::Complete || known && lost != Some(DriveState::Removed) {
        return Err(format!("the lost drive is {lost:?}, repair {:?}", status.repair));
    }
    Ok(())
}
