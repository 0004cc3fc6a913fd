//! Sweep operations that add, drain, replace, return or retire drives during writes, and the checks
//! after the cut.
//!
//! The superblocks must be safe to rely on: the pool is verified without as many drives as
//! their member states still allow to lose. Then all drives return, repair completes,
//! and the same is verified again.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::{AttachedVolume, MemberDrive, Pool, PoolLabel, RepairLimits, RepairState};
use format::DriveState;
use reactor::{Buffer, Reactor};

use super::modelled_write::write;
use super::operation::parse_scheme;
use super::{ExpectedState, SweepOp, check_drives, finish_repair, open_and_verify};
use crate::disk::Disk;
use crate::model::VolumeModel;
use crate::run::Machine;

/// Maximum number of writes during the operation.
const WRITES: u64 = 30;

/// Runs the operation while a writer writes and flushes.
pub(super) async fn perform(
    operation: SweepOp,
    machine: &Machine,
    pool: &Pool,
    volume: &AttachedVolume,
    model: &mut VolumeModel,
) -> engine::Result<()> {
    let (done, over) = (Rc::new(Cell::new(false)), pool.clone());
    let spare = machine.disks.len() - 1;
    let add = operation.adds_a_drive().then(|| machine.add_drive(pool, spare));
    let back = (operation == SweepOp::ReturnDrive).then(|| machine.return_drive(pool, 0));
    if back.is_some() {
        // Paused, so that the rebuild has not given up the drive before it returns.
        pool.set_repair_limits(RepairLimits { paused: true, bytes_per_second: 0 }).await?;
        pool.fail_drive(0).await?;
        write(volume, model, 55, 4096, 64 << 10).await?;
    }
    let bad = machine.disks.first().unwrap_or_else(|| panic!("the machine has drives")).clone();
    let ended = done.clone();
    let changes = Reactor::current().spawn(async move {
        if let Some(add) = add {
            add.await?;
        }
        if matches!(operation, SweepOp::Evacuate | SweepOp::ReplaceDrive) {
            over.remove_drive(0).await?;
        }
        if operation == SweepOp::Retire {
            read_until_drained(&over, &bad).await?;
        }
        if let Some(back) = back {
            back.await?;
            over.set_repair_limits(RepairLimits::default()).await?;
        }
        let settled = over.wait_for_repair().await;
        ended.set(true);
        settled
    });
    for number in 0..WRITES {
        if done.get() {
            break;
        }
        let value = 60 + number;
        write(volume, model, value, number * 8192, 8192).await?;
        volume.flush().await?;
        model.note_flush(2 * value + 1);
    }
    changes.await
}

/// Pages of a bad drive per page that is made unreadable in one step. The steps are small because
/// each unreadable page that is read is rewritten elsewhere.
const PAGES_PER_STEP: usize = 32;

/// Makes pages of the first drive unreadable and reads the volume until the engine drains the drive
/// because of its read errors.
async fn read_until_drained(pool: &Pool, first: &Disk) -> engine::Result<()> {
    let volume = pool.open_volume("v").await?.attach();
    let buffer = Buffer::new(usize::try_from(volume.size()).unwrap_or(0));
    let (mut unreadable, mut errs) = (0, false);
    loop {
        if !errs {
            // The pages made unreadable so far hold parity or garbage, which no read needs.
            assert!(unreadable < PAGES_PER_STEP, "no read hits the bad drive: the sweep tests nothing");
            // The superblocks take the first 4 MiB.
            let pages = first.pages().into_iter().filter(|page| *page >= 1024);
            pages.skip(unreadable).step_by(PAGES_PER_STEP).for_each(|page| first.mark_unreadable(page));
            unreadable += 1;
        }
        volume.read(0, &buffer.span()).await?;
        // Read errors are reported in the background.
        Reactor::current().sleep(Duration::from_micros(100)).await;
        let status = pool.status().await?;
        let Some(drive) = status.drives.first() else { return Ok(()) };
        // The drive is not drained while another one is lost.
        if drive.state != DriveState::Online || status.lost_drives() > 0 {
            return Ok(());
        }
        errs = drive.errors.unreadable > 0;
    }
}

/// Verifies the pool after the cut, or after the complete operation.
pub(super) fn after_cut(
    operation: SweepOp,
    machine: &Machine,
    expected: &mut ExpectedState,
    choice: u64,
) -> Result<(), String> {
    let mut left_out = Vec::new();
    if choice.is_multiple_of(2) {
        left_out = verify_without_drives(operation, machine, expected, choice / 2)
            .map_err(|error| format!("directly after the cut: {error}"))?;
    }
    open_and_verify(operation, machine, expected).map_err(|error| format!("with all drives: {error}"))?;
    finish_repair(machine, |status| {
        let lost_for_good = operation == SweepOp::ReturnDrive && status.lost_drives() > 0;
        status.repair.state == RepairState::Complete || lost_for_good
    })?;
    let members = machine.members();
    check_members(operation, machine, &members, &left_out, expected.done)?;
    check_drives(machine, operation.bad_drives())?;
    let left_out = verify_without_drives(operation, machine, expected, choice);
    left_out.map(|_| ()).map_err(|error| format!("after repair: {error}"))
}

/// Verifies the pool without as many drives as the superblocks allow to lose. Returns the indices
/// of the drives left out.
pub(super) fn verify_without_drives(
    operation: SweepOp,
    machine: &Machine,
    expected: &mut ExpectedState,
    choice: u64,
) -> Result<Vec<usize>, String> {
    let members = machine.members();
    let is_dead = |index: usize| machine.disks.get(index).is_some_and(|disk| disk.is_dead());
    // A crash during a publication leaves superblocks of two generations. A rebuilt drive counts
    // as lost until its removal is published on every drive in use (C1).
    let labels = machine.labels();
    let is_in_use = |drive| members.iter().any(|member| member.id == drive && member.state.is_in_use());
    let lists_as_lost = |label: &PoolLabel, index: usize| {
        is_in_use(label.drive) && label.members.get(index).is_some_and(|member| member.state.counts_as_lost())
    };
    let is_listed_as_lost = |index: usize| labels.iter().any(|label| lists_as_lost(label, index));
    let is_lost = |(index, member): (usize, &MemberDrive)| {
        is_listed_as_lost(index) || member.state.is_in_use() && is_dead(index)
    };
    let lost = members.iter().enumerate().filter(|member| is_lost(*member)).count();
    // The data on a bad drive counts as lost.
    let is_bad = |index: usize| operation.bad_drives().contains(&index);
    let bad = (0..members.len()).filter(|index| {
        is_bad(*index) && members.get(*index).is_some_and(|member| member.state != DriveState::Removed)
    });
    let tolerated = usize::from(parse_scheme(machine.scheme()).parity()).saturating_sub(lost + bad.count());
    let used = (0..members.len()).filter(|index| {
        let in_use = |member: &MemberDrive| member.state.is_in_use() && !member.state.counts_as_lost();
        !is_bad(*index) && !is_dead(*index) && members.get(*index).is_some_and(in_use)
    });
    let used: Vec<usize> = used.collect();
    let first = usize::try_from(choice).unwrap_or(0) % used.len().max(1);
    let before = machine.absent.borrow().clone();
    let left_out: Vec<usize> =
        used.iter().cycle().skip(first).take(tolerated.min(used.len())).copied().collect();
    for absent in &left_out {
        if let Some(place) = machine.absent.borrow_mut().get_mut(*absent) {
            *place = true;
        }
    }
    let looked = open_and_verify(operation, machine, expected);
    *machine.absent.borrow_mut() = before;
    looked.map_err(|error| format!("without {left_out:?}, of {members:?}: {error}"))?;
    Ok(left_out)
}

/// Checks that the drive change is complete or never began. The `left_out` drives may have been
/// given up.
fn check_members(
    operation: SweepOp,
    machine: &Machine,
    members: &[MemberDrive],
    left_out: &[usize],
    done: bool,
) -> Result<(), String> {
    let states: Vec<DriveState> = members.iter().map(|member| member.state).collect();
    let is_settled = |(index, state): (usize, &DriveState)| match state {
        DriveState::Online => true,
        DriveState::Removed => left_out.contains(&index) || index == 0,
        // The operation does not wait for the drain to end.
        DriveState::Draining => index == 0 && operation == SweepOp::Retire,
        _ => index == 0 && state.is_lost() && operation == SweepOp::ReturnDrive,
    };
    let settled = states.iter().enumerate().all(is_settled);
    let first = states.first().copied().unwrap_or(DriveState::Removed);
    let joined = states.len() == machine.disks.len();
    let given_up = left_out.contains(&0);
    let right = match operation {
        // With the spare, or without it if its addition was never acknowledged.
        SweepOp::AddDrive => (first == DriveState::Online || given_up) && (!done || joined),
        SweepOp::Evacuate | SweepOp::Retire => !done || first == DriveState::Removed,
        SweepOp::ReplaceDrive => {
            let replaced = joined && first == DriveState::Removed;
            replaced || !done && first == DriveState::Online || given_up
        }
        _ => !done || first == DriveState::Online || given_up,
    };
    if settled && right { Ok(()) } else { Err(format!("{operation:?} ends with {states:?}")) }
}
