//! The fork sweep: the two halves of a pool are used separately. Each half then has writes that the
//! other lacks. The engine must refuse to combine them, regardless of the number of openings of
//! each half.

use engine::ErrorKind;

use super::operation::parsed;
use super::{SweepOptions, Swept, whole};
use crate::random::mix;
use crate::run::{Ended, Machine};

/// Numbers of openings of a half.
const OPENINGS: [u64; 6] = [1, 2, 7, 8, 9, 20];

/// Uses the halves of a pool separately, with every combination of openings of the two. The pool
/// has as many drives as its scheme's width. Returns the number of combinations, or 0 if the scheme
/// does not tolerate the loss of half of the drives.
///
/// # Errors
/// Describes the failure and the numbers of openings.
pub fn sweep_forks(options: &SweepOptions<'_>) -> Result<u64, String> {
    // With more drives than the width, half of them would not suffice for every segment.
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

/// Returns the indices of the drives of each half.
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
            // A change that the other half lacks.
            open_with(&machine, Some(half), if opening == 0 { "half" } else { "" })?;
            match opening.is_multiple_of(2) {
                true => machine.kill(),
                false => machine.cut_power(),
            }
        }
    }
    must_be_refused(&machine)?;
    // Each half is unchanged.
    halves.iter().try_for_each(|half| open_with(&machine, Some(half), ""))?;
    must_be_refused(&machine)
}

/// Opens the pool with some of the drives, creates a volume unless `volume` is empty, and closes
/// the pool.
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

/// Sets the drives that the machine has from now on; `None` for all drives.
fn give(machine: &Machine, drives: Option<&[usize]>) {
    let mut absent = machine.absent.borrow_mut();
    let is_given = |index: usize| drives.is_none_or(|drives| drives.contains(&index));
    absent.iter_mut().enumerate().for_each(|(index, absent)| *absent = !is_given(index));
}

/// Checks that opening the pool with both halves is refused.
fn must_be_refused(machine: &Machine) -> Result<(), String> {
    give(machine, None);
    match machine.boot(async || machine.open().await.map(|_| ())) {
        Ended::Done(Err(error)) if error.kind() == ErrorKind::NotAPool => Ok(()),
        Ended::Done(result) => Err(format!("opened with both halves: {result:?}")),
        Ended::Cut => Err("unexpected power cut".into()),
    }
}
