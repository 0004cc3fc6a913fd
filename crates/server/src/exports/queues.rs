//! Which reactors carry out what comes by the queues of an export.
//!
//! Those that the volume's blocks are on, unless others were asked for: what comes up there has nowhere to go. All of them, the first in turn, for
//! a volume that is on all.

use engine::Volume;
use reactor::Remote;

use super::table::Manner;
use crate::error::{Error, ErrorKind, Result};
use crate::reactors::Reactors;

/// The reactors that the queues are dealt out to, in turn.
///
/// # Errors
/// `Invalid` when there is none of a number that was asked for.
pub(super) fn reactors_of(manner: &Manner, volume: &Volume, reactors: &Reactors) -> Result<Vec<Remote>> {
    let chosen = chosen_reactors(manner, reactors)?;
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    let own = volume.reactors();
    Ok(if own.len() < reactors.all().len() { own } else { reactors.next_first() })
}

/// The reactors that were asked for.
///
/// # Errors
/// As [`reactors_of`].
pub(super) fn chosen_reactors(manner: &Manner, reactors: &Reactors) -> Result<Vec<Remote>> {
    let all = reactors.all();
    let chosen = manner.reactors.iter().map(|index| {
        all.get(*index as usize).cloned().ok_or_else(|| {
            let message = format!("there is no reactor {index}: the daemon runs {}", all.len());
            Error::new(ErrorKind::Invalid, message)
                .hint("they are numbered from 0; --threads and --cores of the daemon say how many there are")
        })
    });
    chosen.collect()
}

/// Refuses a number of queues that nothing can have.
///
/// # Errors
/// `Invalid`.
pub(super) fn check_queues(manner: &Manner, most: u16) -> Result<()> {
    match manner.queues {
        Some(queues) if !(1..=most).contains(&queues) => {
            Err(Error::new(ErrorKind::Invalid, format!("an export has 1 to {most} queues, not {queues}")))
        }
        _ => Ok(()),
    }
}
