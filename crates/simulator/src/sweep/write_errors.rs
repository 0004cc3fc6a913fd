//! The write error sweep: each write and each flush of each operation fails once, and the drive
//! continues to work.
//!
//! Before the engine relies on the missing write, it must mark the drive as failed in the
//! superblocks. Afterwards the drives listed as in use must suffice, even without as many of them
//! as the scheme tolerates. If the scheme tolerates no further loss, operations may fail, and
//! everything acknowledged earlier must be intact.

use engine::{ErrorKind, RepairState};

use super::membership::verify_without_drives;
use super::{
    ExpectedState, PreparedPools, SweepCounts, SweepOp, SweepOptions, change_tuning, check_drives,
    finish_repair, open_and_verify, run_operation,
};
use crate::random::mix;
use crate::run::{BootEnd, Machine};

/// Sweeps one operation. Each write or flush fails once for each outcome, with different surviving
/// pages.
///
/// # Errors
/// Describes the violation and the write that had failed.
pub fn sweep_failures(operation: SweepOp, options: &SweepOptions<'_>) -> Result<SweepCounts, String> {
    let mut counts = SweepCounts::default();
    if (1..=operation.bad_drives().len()).contains(&options.parity()) {
        // The data of the bad drive and of the failed drive would be lost together.
        return Ok(counts);
    }
    let mut pools = PreparedPools::new(operation, options);
    for number in (options.first..).step_by(options.step) {
        let mut happened = false;
        for outcome in 0..options.outcomes {
            let at = |message| {
                format!("{operation:?} on {options}, failure of write {number}, outcome {outcome}: {message}")
            };
            let failed = one_failure(&mut pools, number, outcome).map_err(at)?;
            counts.failures += u64::from(failed);
            happened |= failed;
        }
        if !happened {
            break;
        }
    }
    Ok(counts)
}

/// Copies a prepared pool, fails one write or flush of the operation, and verifies the remaining
/// state. Returns false if the operation has fewer writes and flushes.
fn one_failure(pools: &mut PreparedPools<'_>, number: u64, outcome: u64) -> Result<bool, String> {
    let (operation, options) = (pools.operation, pools.options);
    let (machine, mut expected) = pools.copy_for(number, mix(number ^ outcome << 32 ^ 1 << 63))?;
    let ended = run_operation(operation, &machine, &mut expected, || machine.fail_after(number));
    let failed = machine.trigger.fail_at.take().is_some_and(|at| at <= machine.trigger.stores.get());
    match ended {
        BootEnd::Completed(Ok(())) => expected.done = true,
        BootEnd::Completed(Err(error)) if failed && may_fail(operation, options.parity(), error.kind()) => {}
        BootEnd::Completed(Err(error)) => return Err(format!("the operation failed: {error:?}")),
        BootEnd::PowerCut => return Err("unexpected power cut".into()),
    }
    if outcome.is_multiple_of(2) {
        machine.cut_power();
    } else {
        machine.kill_process();
    }
    change_tuning(&machine, number + outcome);
    if failed {
        after_failure(operation, &machine, &mut expected, number + outcome)?;
    }
    Ok(failed)
}

/// Returns true if the operation may end with this error when a write or flush fails.
fn may_fail(operation: SweepOp, parity: usize, kind: ErrorKind) -> bool {
    let lost = usize::from(operation.loses_a_drive());
    let too_many = lost >= parity;
    match kind {
        // An opening refuses the pool for the reasons that make a pool in service fail.
        ErrorKind::PoolFailed | ErrorKind::NotAPool => too_many,
        // Only these operations read; a block on the failed drive is gone.
        ErrorKind::Corrupt => too_many && matches!(operation, SweepOp::CompareAndWrite | SweepOp::Copy),
        // The joining drive does not store its superblock, or the drained drive or another one
        // failed.
        ErrorKind::Io | ErrorKind::NotFound | ErrorKind::Busy => operation.changes_drives(),
        _ => false,
    }
}

/// Verifies the pool after the failure.
fn after_failure(
    operation: SweepOp,
    machine: &Machine,
    expected: &mut ExpectedState,
    choice: u64,
) -> Result<(), String> {
    check_drives(machine, operation.bad_drives())?;
    // A failed drive may be missing permanently.
    let operation = if operation == SweepOp::Rebuild { SweepOp::LoseDrive } else { operation };
    verify_without_drives(operation, machine, expected, choice)
        .map_err(|error| format!("directly after the failure: {error}"))?;
    open_and_verify(operation, machine, expected).map_err(|error| format!("with all drives: {error}"))?;
    // A failed drive stays out; everything else is fully redundant in the end.
    finish_repair(machine, |status| {
        let is_out = status.drives.iter().any(|drive| drive.state.is_lost());
        match status.repair.state {
            RepairState::Complete => true,
            RepairState::NeedsDrive => is_out,
            // That pool is almost full.
            RepairState::NeedsSpace => is_out && operation == SweepOp::Clean,
            _ => false,
        }
    })?;
    check_drives(machine, operation.bad_drives())?;
    verify_without_drives(operation, machine, expected, choice)
        .map(|_| ())
        .map_err(|error| format!("after repair: {error}"))
}
