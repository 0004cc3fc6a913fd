//! `gabion quickstart`: a guided demonstration of a pool in one command.
//!
//! Owns the order of the steps and their output. All steps use the API and real clients, as a user
//! would. Always true: at the end, also after a failure or signal, the daemon is stopped, and the
//! directory is removed unless it is kept.

mod data;
mod objects;
mod report;
mod steps;
mod work_dir;

use anyhow::{Context, Result, bail};
use bench::Suite;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Global, QuickstartArgs};
use crate::failure::ExitReason;

/// Runs `gabion quickstart`.
///
/// # Errors
/// The error of a step; the daemon is stopped and the files are removed then.
pub(crate) fn run(global: &Global, arguments: &QuickstartArgs) -> Result<ExitReason> {
    if global.socket.is_some() {
        bail!("--socket has no effect: the quickstart starts a separate daemon");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let result = runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            result = steps::run_all(global, arguments) => result,
            _ = interrupt.recv() => Err(interrupted()),
            _ = terminate.recv() => Err(interrupted()),
        }
    });
    // A running client is not waited for: it fails because its export is gone.
    runtime.shutdown_background();
    let (report, text) = result?;
    let text = if global.json { crate::terminal::to_json(&report)? } else { text };
    crate::terminal::print(&text)?;
    Ok(ExitReason::Success)
}

fn interrupted() -> anyhow::Error {
    anyhow::anyhow!("interrupted: the daemon was stopped and the files were removed")
}

/// Returns the suite of the demonstration.
fn suite() -> Suite {
    Suite::raid_vm()
}
