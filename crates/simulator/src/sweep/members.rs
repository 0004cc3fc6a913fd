//! Drives that come and go while somebody writes: what the sweep does, and what must hold after the cut.
//!
//! Whatever the newest superblock says, it must be safe to believe: as many drives as it leaves to be lost are left out, and
//! everything is there. Then all of them come back, what was begun is done, and all of that holds again.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::{AttachedVolume, Member, Pool, RepairLimits, RepairState};
use format::DriveState;
use reactor::{Buffer, Reactor};

use super::operation::parsed;
use super::perform::write;
use super::{Expected, Swept, check_drives, look, settle};
use crate::disk::Disk;
use crate::model::VolumeModel;
use crate::run::Machine;

/// Writes that go on meanwhile at most.
const WRITES: u64 = 30;

/// Does the operation while somebody writes and flushes.
pub(super) async fn perform(
    operation: Swept,
    machine: &Machine,
    pool: &Pool,
    volume: &AttachedVolume,
    model: &mut VolumeModel,
) -> engine::Result<()> {
    let (done, over) = (Rc::new(Cell::new(false)), pool.clone());
    let spare = machine.disks.len() - 1;
    let add = operation.adds_a_drive().then(|| machine.add(pool, spare));
    let back = (operation == Swept::ReturnDrive).then(|| machine.bring_back(pool, 0));
    if back.is_some() {
        // So that it has not been given up when it comes back.
        pool.set_repair_limits(RepairLimits { paused: true, bytes_per_second: 0 }).await?;
        pool.fail_drive(0).await?;
        write(volume, model, 55, 4096, 64 << 10).await?;
    }
    let bad = machine.disks.first().unwrap_or_else(|| panic!("there is a drive")).clone();
    let ended = done.clone();
    let changes = Reactor::current().spawn(async move {
        if let Some(add) = add {
            add.await?;
        }
        if matches!(operation, Swept::Evacuate | Swept::ReplaceDrive) {
            over.evacuate_drive(0).await?;
        }
        if operation == Swept::Retire {
            read_until_retired(&over, &bad).await?;
        }
        if let Some(back) = back {
            back.await?;
            over.set_repair_limits(RepairLimits::default()).await?;
        }
        let settled = over.repair_settled().await;
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
        model.flushed(2 * value + 1);
    }
    changes.await
}

/// Of the pages of a bad drive, each how many is spoiled at once. Few: each that is read is written elsewhere.
const SPOILED: usize = 32;

/// Lets the first drive go bad, and reads everything, until it is to be emptied for what it does not give.
async fn read_until_retired(pool: &Pool, first: &Disk) -> engine::Result<()> {
    let volume = pool.open_volume("v").await?.attach();
    let buffer = Buffer::new(usize::try_from(volume.size()).unwrap_or(0));
    let (mut spoiled, mut errs) = (0, false);
    loop {
        if !errs {
            // What was spoiled so far is parity, or dead: nobody reads it.
            assert!(spoiled < SPOILED, "nothing is read from the drive: the sweep means nothing");
            // The superblocks lie in the first four MiB.
            let pages = first.pages().into_iter().filter(|page| *page >= 1024);
            pages.skip(spoiled).step_by(SPOILED).for_each(|page| first.spoil(page));
            spoiled += 1;
        }
        volume.read(0, &buffer.span()).await?;
        // It is told in the background.
        Reactor::current().sleep(Duration::from_micros(100)).await;
        let status = pool.status().await?;
        let Some(drive) = status.drives.first() else { return Ok(()) };
        // It is not emptied while another one is lost.
        if drive.state != DriveState::Online || status.lost_drives() > 0 {
            return Ok(());
        }
        errs = drive.errors.unreadable > 0;
    }
}

/// What must hold after the cut, or without one.
pub(super) fn after_cut(
    operation: Swept,
    machine: &Machine,
    expected: &mut Expected,
    choice: u64,
) -> Result<(), String> {
    let mut left_out = Vec::new();
    if choice.is_multiple_of(2) {
        left_out = without_others(operation, machine, expected, choice / 2)
            .map_err(|error| format!("right after the cut: {error}"))?;
    }
    look(operation, machine, expected).map_err(|error| format!("with all drives: {error}"))?;
    settle(machine, |status| {
        let lost_for_good = operation == Swept::ReturnDrive && status.lost_drives() > 0;
        status.repair.state == RepairState::Whole || lost_for_good
    })?;
    let members = machine.members();
    check_members(operation, machine, &members, &left_out, expected.done)?;
    check_drives(machine, operation.bad_drives())?;
    let left_out = without_others(operation, machine, expected, choice);
    left_out.map(|_| ()).map_err(|error| format!("when all is done: {error}"))
}

/// Leaves out as many drives as may be lost by what the superblocks say, and looks. Gives which they were.
pub(super) fn without_others(
    operation: Swept,
    machine: &Machine,
    expected: &mut Expected,
    choice: u64,
) -> Result<Vec<usize>, String> {
    let members = machine.members();
    let is_dead = |index: usize| machine.disks.get(index).is_some_and(|disk| disk.is_dead());
    let is_lost = |(index, member): (usize, &Member)| {
        member.state.counts_as_lost() || member.state.is_in_use() && is_dead(index)
    };
    let lost = members.iter().enumerate().filter(|member| is_lost(*member)).count();
    // What is on a bad drive is as good as lost.
    let is_bad = |index: usize| operation.bad_drives().contains(&index);
    let bad = (0..members.len()).filter(|index| {
        is_bad(*index) && members.get(*index).is_some_and(|member| member.state != DriveState::Removed)
    });
    let bears = usize::from(parsed(machine.scheme()).parity()).saturating_sub(lost + bad.count());
    let used = (0..members.len()).filter(|index| {
        let in_use = |member: &Member| member.state.is_in_use() && !member.state.counts_as_lost();
        !is_bad(*index) && !is_dead(*index) && members.get(*index).is_some_and(in_use)
    });
    let used: Vec<usize> = used.collect();
    let first = usize::try_from(choice).unwrap_or(0) % used.len().max(1);
    let before = machine.absent.borrow().clone();
    let left_out: Vec<usize> = used.iter().cycle().skip(first).take(bears.min(used.len())).copied().collect();
    for absent in &left_out {
        if let Some(place) = machine.absent.borrow_mut().get_mut(*absent) {
            *place = true;
        }
    }
    let looked = look(operation, machine, expected);
    *machine.absent.borrow_mut() = before;
    looked.map_err(|error| format!("without {left_out:?}, of {members:?}: {error}"))?;
    Ok(left_out)
}

/// What was begun is done, or was never begun. Drives that were `left_out` may have been given up.
fn check_members(
    operation: Swept,
    machine: &Machine,
    members: &[Member],
    left_out: &[usize],
    done: bool,
) -> Result<(), String> {
    let states: Vec<DriveState> = members.iter().map(|member| member.state).collect();
    let is_settled = |(index, state): (usize, &DriveState)| match state {
        DriveState::Online => true,
        DriveState::Removed => left_out.contains(&index) || index == 0,
        // Nobody waited for it.
        DriveState::Draining => index == 0 && operation == Swept::Retire,
        _ => index == 0 && state.is_lost() && operation == Swept::ReturnDrive,
    };
    let settled = states.iter().enumerate().all(is_settled);
    let first = states.first().copied().unwrap_or(DriveState::Removed);
    let joined = states.len() == machine.disks.len();
    let given_up = left_out.contains(&0);
    let right = match operation {
        // With the spare, or without it if nobody was told that it had joined.
        Swept::AddDrive => (first == DriveState::Online || given_up) && (!done || joined),
        Swept::Evacuate | Swept::Retire => !done || first == DriveState::Removed,
        Swept::ReplaceDrive => {
            let replaced = joined && first == DriveState::Removed;
            replaced || !done && first == DriveState::Online || given_up
        }
        _ => !done || first == DriveState::Online || given_up,
    };
    if settled && right { Ok(()) } else { Err(format!("{operation:?} ends with {states:?}")) }
}
