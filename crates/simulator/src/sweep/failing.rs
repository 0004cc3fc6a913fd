//! Every write and every flush of every operation fails once, and the drive goes on as if nothing had been.
//!
//! The engine must take the drive out of use and say so before it relies on what the drive did not take: afterwards the drives that the
//! superblocks call in use must do, without as many of them as the scheme bears. Where it bears no more losses, operations may fail, and
//! what was promised before is there.

use engine::{ErrorKind, RepairState};

use super::members::without_others;
use super::{Expected, Swath, SweepOptions, Swept, check_drives, look, operate, prepare, retune, settle};
use crate::random::mix;
use crate::run::{Ended, Machine};

/// Sweeps one operation: each write or flush fails as often as there are outcomes, with different leftovers.
///
/// # Errors
/// What went wrong, and which one had failed.
pub fn sweep_failures(operation: Swept, options: &SweepOptions<'_>) -> Result<Swath, String> {
    let mut swath = Swath::default();
    if (1..=operation.bad_drives().len()).contains(&options.parity()) {
        // What a bad drive does not give would be lost together with the other one.
        return Ok(swath);
    }
    for number in (1..).step_by(options.step) {
        let mut happened = false;
        for outcome in 0..options.outcomes {
            let at = |message| {
                format!("{operation:?} on {options}, failure of write {number}, outcome {outcome}: {message}")
            };
            let failed = one_failure(operation, options, number, outcome).map_err(at)?;
            swath.failures += u64::from(failed);
            happened |= failed;
        }
        if !happened {
            break;
        }
    }
    Ok(swath)
}

/// Prepares a pool, lets one write or flush of the operation fail, and looks at what is left. False if there were not so many.
fn one_failure(
    operation: Swept,
    options: &SweepOptions<'_>,
    number: u64,
    outcome: u64,
) -> Result<bool, String> {
    let machine = options.machine(operation, mix(number ^ outcome << 32 ^ 1 << 63));
    let mut expected = Expected::of(operation, options);
    prepare(operation, &machine, &mut expected)?;
    let ended = operate(operation, &machine, &mut expected, || machine.fail_after(number));
    let failed = machine.fuse.fail_at.take().is_some_and(|at| at <= machine.fuse.stores.get());
    match ended {
        Ended::Done(Ok(())) => expected.done = true,
        Ended::Done(Err(error)) if failed && may_fail(operation, options.parity(), error.kind()) => {}
        Ended::Done(Err(error)) => return Err(format!("the operation failed: {error:?}")),
        Ended::Cut => return Err("nobody cuts the power".into()),
    }
    if outcome.is_multiple_of(2) {
        machine.cut_power();
    } else {
        machine.kill();
    }
    retune(&machine, number + outcome);
    if failed {
        after_failure(operation, &machine, &mut expected, number + outcome)?;
    }
    Ok(failed)
}

/// True if an operation may end so when a write or flush fails.
fn may_fail(operation: Swept, parity: usize, kind: ErrorKind) -> bool {
    let lost = usize::from(operation.loses_a_drive());
    let too_many = lost >= parity;
    match kind {
        // Opening refuses what service fails on.
        ErrorKind::PoolFailed | ErrorKind::NotAPool => too_many,
        // A drive that is to join does not take its superblock; one that is to be emptied is lost, or another one is.
        ErrorKind::Io | ErrorKind::NotFound | ErrorKind::Busy => operation.changes_drives(),
        _ => false,
    }
}

/// What must hold afterwards.
fn after_failure(
    operation: Swept,
    machine: &Machine,
    expected: &mut Expected,
    choice: u64,
) -> Result<(), String> {
    check_drives(machine, operation.bad_drives())?;
    // A drive that was taken out may be missed for good.
    let operation = if operation == Swept::Rebuild { Swept::LoseDrive } else { operation };
    without_others(operation, machine, expected, choice)
        .map_err(|error| format!("right after it: {error}"))?;
    look(operation, machine, expected).map_err(|error| format!("with all drives: {error}"))?;
    // Whoever was taken out stays out; everything else is whole in the end.
    settle(machine, |status| {
        let is_out = status.drives.iter().any(|drive| drive.state.is_lost());
        match status.repair.state {
            RepairState::Whole => true,
            RepairState::NeedsDrive => is_out,
            // That pool is as good as full.
            RepairState::NeedsSpace => is_out && operation == Swept::Clean,
            _ => false,
        }
    })?;
    check_drives(machine, operation.bad_drives())?;
    without_others(operation, machine, expected, choice)
        .map(|_| ())
        .map_err(|error| format!("when all is done: {error}"))
}
