//! The full host sweep: the host's file systems under the drives are full from the first, second,
//! third ... reservation of space on, until the operation ends.
//!
//! The operation succeeds or fails with `NoSpace`. Acknowledged data and all drives stay intact,
//! and everything works again once there is space.

use engine::ErrorKind;

use super::{
    PreparedPools, SweepCounts, SweepOp, SweepOptions, change_tuning, check_drives, open_and_verify,
    run_operation,
};
use crate::random::mix;
use crate::run::BootEnd;

/// Sweeps one operation, once for each reservation of space.
///
/// # Errors
/// Describes the failure and the first refused reservation.
pub fn sweep_full_hosts(operation: SweepOp, options: &SweepOptions<'_>) -> Result<SweepCounts, String> {
    let mut counts = SweepCounts::default();
    let mut pools = PreparedPools::new(operation, options);
    for number in (options.first..).step_by(options.step) {
        let at =
            |message| format!("{operation:?} on {options}, no space from reservation {number} on: {message}");
        if !one_full_host(&mut pools, number).map_err(at)? {
            break;
        }
        counts.full_hosts += 1;
    }
    Ok(counts)
}

/// Copies a prepared pool, refuses space while the operation runs, and verifies the remaining
/// state. Returns false if the operation makes fewer reservations.
fn one_full_host(pools: &mut PreparedPools<'_>, number: u64) -> Result<bool, String> {
    let operation = pools.operation;
    let (machine, mut expected) = pools.copy_for(number, mix(number ^ 1 << 62))?;
    // Opening the pool makes most of the reservations, so it is part of every operation.
    machine.refuse_from(number);
    let ended = run_operation(operation, &machine, &mut expected, || ());
    let refused =
        machine.trigger.refuse_from.take().is_some_and(|at| at <= machine.trigger.reservations.get());
    match ended {
        BootEnd::Completed(Ok(())) => expected.done = true,
        BootEnd::Completed(Err(error)) if refused && error.kind() == ErrorKind::NoSpace => {}
        BootEnd::Completed(Err(error)) => return Err(format!("the operation failed: {error:?}")),
        BootEnd::PowerCut => return Err("unexpected power cut".into()),
    }
    if number.is_multiple_of(2) {
        machine.cut_power();
    } else {
        machine.kill_process();
    }
    change_tuning(&machine, number);
    if refused {
        open_and_verify(operation, &machine, &mut expected)?;
        check_drives(&machine, operation.bad_drives())?;
    }
    Ok(refused)
}
