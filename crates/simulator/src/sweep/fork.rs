//! The two halves of a pool are used apart from each other: each has what the other lacks, and they must never be put together, however
//! often either of them was opened since.

use engine::ErrorKind;

use super::operation::parsed;
use super::{SweepOptions, Swept, whole};
use crate::random::mix;
use crate::run::{Ended, Machine};

/// How often each half is opened.
const OPENINGS: [u64; 6] = [1, 2, 7, 8, 9, 20];

/// Uses the halves of a pool of as few drives as its scheme needs apart, with every number of openings on either side. Gives how many pairs of halves there were; none where
/// the scheme does not bear that half of the drives are missing.
///
/// # Errors
/// What went wrong, and after how many openings.
pub fn sweep_forks(options: &SweepOptions<'_>) -> Result<u64, String> {
    // Half of the drives do for no segment where there are more than it takes.
    let options = &SweepOptions { drives: parsed(options.scheme).width().into(), ..*options };
    let halves = halves_of(options.drives);
    if halves.iter().any(|half| options.drives - half.len() > options.parity()) {
        return Ok(0);
    }
    let mut pairs = 0;
    for first in OPENINGS {
        for second in OPENINGS {
            let at = |message| format!("{options}, halves opened {first} and {second} times: {message}");
            one_fork(options, &halves, [first, second]).map_err(at)?;
            pairs += 1;
        }
    }
    Ok(pairs)
}

/// The numbers of the drives of each half.
fn halves_of(drives: usize) -> [Vec<usize>; 2] {
    [(0..drives / 2).collect(), (drives / 2..drives).collect()]
}

fn one_fork(options: &SweepOptions<'_>, halves: &[Vec<usize>; 2], openings: [u64; 2]) -> Result<(), String> {
    let [first, second] = openings;
    let machine = options.machine(Swept::Open, mix(first ^ second << 8 ^ 1 << 60));
    whole(machine.boot(async || machine.create().await.map_err(|error| format!("create: {error:?}"))))?;
    open_with(&machine, None, "v")?;
    for (half, openings) in halves.iter().zip(openings) {
        for opening in 0..openings {
            // Something that the other half knows nothing of.
            open_with(&machine, Some(half), if opening == 0 { "half" } else { "" })?;
            match opening.is_multiple_of(2) {
                true => machine.kill(),
                false => machine.cut_power(),
            }
        }
    }
    must_be_refused(&machine)?;
    // Either half is as it was left.
    halves.iter().try_for_each(|half| open_with(&machine, Some(half), ""))?;
    must_be_refused(&machine)
}

/// Opens the pool with some of the drives, creates a volume if there is a name for one, and closes the pool.
fn open_with(machine: &Machine, drives: Option<&[usize]>, volume: &str) -> Result<(), String> {
    give(machine, drives);
    whole(machine.boot(async || {
        let error = |error: engine::Error| format!("opened with {drives:?}: {error:?}");
        let (pool, _) = machine.open().await.map_err(error)?;
        if !volume.is_empty() {
            pool.create_volume(volume, 1 << 20, 4096, 0).await.map_err(error)?;
        }
        pool.close().await.map_err(error)
    }))
}

/// Drives that the machine has from now on; all if not said.
fn give(machine: &Machine, drives: Option<&[usize]>) {
    let mut absent = machine.absent.borrow_mut();
    let is_given = |index: usize| drives.is_none_or(|drives| drives.contains(&index));
    absent.iter_mut().enumerate().for_each(|(index, absent)| *absent = !is_given(index));
}

/// An opening with both halves.
fn must_be_refused(machine: &Machine) -> Result<(), String> {
    give(machine, None);
    match machine.boot(async || machine.open().await.map(|_| ())) {
        Ended::Done(Err(error)) if error.kind() == ErrorKind::NotAPool => Ok(()),
        Ended::Done(result) => Err(format!("both halves together: {result:?}")),
        Ended::Cut => Err("nobody cuts the power".into()),
    }
}
