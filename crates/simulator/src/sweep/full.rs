//! The full host sweep: the host's file systems under the drives are full from the first, second,
//! third ... reservation of space on, until the operation ends.
//!
//! The operation succeeds or fails with `NoSpace`. Acknowledged data and all drives stay intact,
//! and everything works again once there is space.

use engine::ErrorKind;

use super::{Expected, Swath, SweepOptions, Swept, check_drives, look, operate, prepare, retune};
use crate::random::mix;
use crate::run::Ended;

/// Sweeps one operation, once for each reservation of space.
///
/// # Errors
/// Describes the failure and the first refused reservation.
pub fn sweep_full_hosts(operation: Swept, options: &SweepOptions<'_>) -> Result<Swath, String> {
    let mut swath = Swath::default();
    for number in (1..).step_by(options.step) {
        let at =
            |message| format!("{operation:?} on {options}, no space from reservation {number} on: {message}");
        if !one_full_host(operation, options, number).map_err(at)? {
            break;
        }
        swath.full_hosts += 1;
    }
    Ok(swath)
}

/// Prepares a pool, refuses space while the operation runs, and verifies the remaining state.
/// Returns false if the operation makes fewer reservations.
fn one_full_host(operation: Swept, options: &SweepOptions<'_>, number: u64) -> Result<bool, String> {
    let machine = options.machine(operation, mix(number ^ 1 << 62));
    let mut expected = Expected::of(operation, options);
    prepare(operation, &machine, &mut expected)?;
    // Opening the pool makes most of the reservations, so it is part of every operation.
    machine.refuse_from(number);
    let ended = operate(operation, &machine, &mut expected, || ());
    let refused = machine.fuse.refuse_from.take().is_some_and(|at| at <= machine.fuse.reservations.get());
    match ended {
        Ended::Done(Ok(())) => expected.done = true,
        Ended::Done(Err(error)) if refused && error.kind() == ErrorKind::NoSpace => {}
        Ended::Done(Err(error)) => return Err(format!("the operation failed: {error:?}")),
        Ended::Cut => return Err("unexpected power cut".into()),
    }
    if number.is_multiple_of(2) {
        machine.cut_power();
    } else {
        machine.kill();
    }
    retune(&machine, number);
    if refused {
        look(operation, &machine, &mut expected)?;
        check_drives(&machine, operation.bad_drives())?;
    }
    Ok(refused)
}
