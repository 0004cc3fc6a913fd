//! The file systems under the drives are full, from the first, second, third time on that an operation asks for space, until it ends.
//!
//! The operation succeeds or says that there is no space; nothing that was promised is lost, no drive is, and when there is space again
//! everything goes on.

use engine::ErrorKind;

use super::{Expected, Swath, SweepOptions, Swept, check_drives, look, operate, prepare, retune};
use crate::random::mix;
use crate::run::Ended;

/// Sweeps one operation, once for each time that space is asked for.
///
/// # Errors
/// What went wrong, and from which request on there was no space.
pub fn sweep_full_hosts(operation: Swept, options: &SweepOptions<'_>) -> Result<Swath, String> {
    let mut swath = Swath::default();
    for number in (1..).step_by(options.step) {
        let at =
            |message| format!("{operation:?} on {options}, no space from request {number} on: {message}");
        if !one_full_host(operation, options, number).map_err(at)? {
            break;
        }
        swath.full_hosts += 1;
    }
    Ok(swath)
}

/// Prepares a pool, refuses space while the operation runs, and looks at what is left. False if so much was not asked for.
fn one_full_host(operation: Swept, options: &SweepOptions<'_>, number: u64) -> Result<bool, String> {
    let machine = options.machine(operation, mix(number ^ 1 << 62));
    let mut expected = Expected::of(operation, options);
    prepare(operation, &machine, &mut expected)?;
    // Opening the pool asks for most of what is asked for at all: it is part of every operation.
    machine.refuse_from(number);
    let ended = operate(operation, &machine, &mut expected, || ());
    let refused = machine.fuse.refuse_from.take().is_some_and(|at| at <= machine.fuse.reservations.get());
    match ended {
        Ended::Done(Ok(())) => expected.done = true,
        Ended::Done(Err(error)) if refused && error.kind() == ErrorKind::NoSpace => {}
        Ended::Done(Err(error)) => return Err(format!("the operation failed: {error:?}")),
        Ended::Cut => return Err("nobody cuts the power".into()),
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
