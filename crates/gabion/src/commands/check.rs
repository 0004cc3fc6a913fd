//! `gabion check`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use indicatif::ProgressBar;
use server::offline;

use crate::cli::Global;
use crate::failure::ExitReason;
use crate::output;

/// Verifies a closed pool.
///
/// # Errors
/// If the pool cannot be verified.
pub(crate) fn run(global: &Global, drives: &[PathBuf]) -> Result<ExitReason> {
    let spinner = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner.set_message(format!("verifying {} drives", drives.len()));
    let checked = offline::check(drives);
    spinner.finish_and_clear();
    let report = checked.map_err(api::Error::from)?;
    let text = match (global.json, global.quiet) {
        (true, _) => super::to_json(&report)?,
        (false, true) => String::new(),
        (false, false) => output::check_report(&report),
    };
    super::print(&text)?;
    Ok(if report.sound && !report.degraded { ExitReason::Success } else { ExitReason::Unhealthy })
}
