//! `gabion quickstart`: from nothing to a served, measured, damaged and verified pool, in one command.
//!
//! Owns the order of the steps and what is said of them. Everything is done as a user would do it: by the API and real
//! clients. Always true: when it ends, however it ends, its daemon has ended, and its directory is gone unless kept.

mod data;
mod place;
mod report;
mod steps;

use anyhow::{Context, Result, bail};
use bench::Suite;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Global, QuickstartArgs};
use crate::failure::Outcome;

/// Runs it.
///
/// # Errors
/// What went wrong; nothing is left behind then.
pub(crate) fn run(global: &Global, arguments: &QuickstartArgs) -> Result<Outcome> {
    if global.socket.is_some() {
        bail!("a quickstart has a daemon of its own: --socket means nothing to it");
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let result = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            result = steps::all(global, arguments) => result,
            _ = interrupt.recv() => Err(interrupted()),
            _ = terminate.recv() => Err(interrupted()),
        }
    });
    // A client that was started may still be at it; its export is gone, and so is it in a moment.
    runtime.shutdown_background();
    let (report, text) = result?;
    let text = if global.json { crate::commands::to_json(&report)? } else { text };
    crate::commands::print(&text)?;
    Ok(Outcome::Done)
}

fn interrupted() -> anyhow::Error {
    anyhow::anyhow!("interrupted: the daemon has ended, the files are gone")
}

/// The workload that it runs.
fn suite() -> Suite {
    Suite::raid_vm()
}
