//! The fork sweep: the two halves of a pool are used separately. Each half then has writes that the
//! other lacks. The engine must refuse to combine them, regardless of the number of openings of
//! each half.

use engine::ErrorKind;

use super::operation::parse_scheme;
use super::{SweepOp, SweepOptions, completed};
use crate::random::mix;
use crate::run::{BootEnd, Machine};

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
    let options = &SweepOptions { drives: parse_scheme(options.scheme).width().into(), ..*options };
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
    let machine = options.machine(SweepOp::Open, mix(first ^ second << 8 ^ 1 << 60));
    completed(machine.boot(async || machine.create().await.map_err(|error| format!("create: {error:?}"))))?;
    open_with(&machine, None, "v")?;
    for (half, openings) in halves.iter().zip(openings) {
        for opening in 0..openings {
            // A change that the other half lacks.
            open_with(&machine, Some(half), if opening == 0 { "half" } else { "" })?;
            match opening.is_multiple_of(2) {
                true => machine.kill_process(),
                false => machine.cut_power(),
            }
        }
    }
    expect_refused(&machine)?;
    // Each half is unchanged.
    halves.iter().try_for_each(|half| open_with(&machine, Some(half), ""))?;
    expect_refused(&machine)
}

/// Opens the pool with some of the drives, creates a volume unless `volume` is empty, and closes
/// the pool.
fn open_with(machine: &Machine, drives: Option<&[usize]>, volume: &str) -> Result<(), String> {
    set_present_drives(machine, drives);
    completed(machine.boot(async || {
        let error = |error: engine::Error| format!("opened with {drives:?}: {error:?}");
        let (pool, _) = machine.open().await.map_err(error)?;
        if !volume.is_empty() {
            pool.create_volume(volume, 1 << 20, 4096, 0).await.map_err(error)?;
        }
        pool.close().await.map_err(error)
    }))
}

/// Sets the drives that the machine has from now on; `None` for all drives.
fn set_present_drives(machine: &Machine, drives: Option<&[usize]>) {
    let mut absent = machine.absent.borrow_mut();
    let is_given = |index: usize| drives.is_none_or(|drives| drives.contains(&index));
    absent.iter_mut().enumerate().for_each(|(index, absent)| *absent = !is_given(index));
}

/// Checks that opening the pool with both halves is refused.
fn expect_refused(machine: &Machine) -> Result<(), String> {
    set_present_drives(machine, None);
    match machine.boot(async || machine.open().await.map(|_| ())) {
        BootEnd::Completed(Err(error)) if error.kind() == ErrorKind::NotAPool => Ok(()),
        BootEnd::Completed(result) => Err(format!("opened with both halves: {result:?}")),
        BootEnd::PowerCut => Err("unexpected power cut".into()),
    }
}
