//! `gabion drive identify`. Needs no daemon.

use std::path::PathBuf;

use anyhow::Result;
use server::offline;

use crate::cli::Global;
use crate::failure::ExitReason;
use crate::output;

/// Shows the type, use and contents of drives.
///
/// # Errors
/// The error of the first drive that cannot be inspected, after all of them are shown.
pub(super) fn run(global: &Global, drives: Vec<PathBuf>) -> Result<ExitReason> {
    let identified = offline::identify(drives).map_err(api::Error::from)?;
    let text = if global.json { super::to_json(&identified)? } else { output::identified(&identified) };
    super::print(&text)?;
    match identified.into_iter().find_map(|drive| drive.error) {
        Some(error) => Err(error.into()),
        None => Ok(ExitReason::Success),
    }
}
