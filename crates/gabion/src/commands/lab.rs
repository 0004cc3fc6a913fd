//! `gabion lab`.

use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use bench::lab::{Lab, LabPlan, down, models, up};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Global, LabCommand, LabUpArgs};
use crate::failure::ExitReason;
use crate::output;

/// Runs a `gabion lab` command.
///
/// # Errors
/// The error of the command.
pub(crate) fn run(global: &Global, command: LabCommand) -> Result<ExitReason> {
    match command {
        LabCommand::Up(arguments) => {
            let lab = create(arguments)?;
            show(global, &[lab])
        }
        LabCommand::Down { name } => {
            let lab = down(&name)?;
            if global.json {
                super::print(&super::to_json(&lab)?)?;
            } else if !global.quiet {
                super::print(&format!("lab '{name}' removed, with its {} drives", lab.drives.len()))?;
            }
            Ok(ExitReason::Success)
        }
        LabCommand::Status => show(global, &Lab::all()?),
        LabCommand::Models => {
            let models = models();
            let text = match (global.json, global.quiet) {
                (true, _) => super::to_json(&models)?,
                (_, true) => models.iter().map(|model| format!("{}\n", model.name)).collect(),
                _ => output::lab_models(&models),
            };
            super::print(&text)?;
            Ok(ExitReason::Success)
        }
        LabCommand::Run { lab, program } => exec_program(&lab, &program),
    }
}

/// Creates a lab. A signal aborts the creation and removes its parts.
fn create(arguments: LabUpArgs) -> Result<Lab> {
    let plan = LabPlan {
        name: arguments.name,
        drives: arguments.drives,
        model: arguments.model,
        fraction: arguments.fraction,
        drive_bytes: arguments.size.bytes(),
        directory: arguments.dir,
    };
    let lab = run_until_signal(move |stop| up(&plan, stop))??;
    Ok(lab)
}

/// Runs a blocking function, and sets its stop flag on SIGINT and SIGTERM.
pub(crate) fn run_until_signal<T: Send + 'static>(
    work: impl FnOnce(&Arc<AtomicBool>) -> T + Send + 'static,
) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stop = Arc::new(AtomicBool::new(false));
        let shared = stop.clone();
        let mut work = tokio::task::spawn_blocking(move || work(&shared));
        loop {
            tokio::select! {
                result = &mut work => return result.context("the task ended early"),
                _ = interrupt.recv() => stop.store(true, Ordering::Relaxed),
                _ = terminate.recv() => stop.store(true, Ordering::Relaxed),
            }
        }
    })
}

fn show(global: &Global, labs: &[Lab]) -> Result<ExitReason> {
    let text = match (global.json, global.quiet) {
        (true, _) => super::to_json(&labs)?,
        // Only device paths, for the command line of a pool.
        (_, true) => labs.iter().flat_map(Lab::devices).map(|path| format!("{}\n", path.display())).collect(),
        _ if labs.is_empty() => "no labs; 'gabion lab up' creates one".into(),
        _ => output::labs(labs),
    };
    super::print(&text)?;
    Ok(ExitReason::Success)
}

fn exec_program(name: &str, program: &[String]) -> Result<ExitReason> {
    let lab = Lab::find(name)?.ok_or_else(|| bench::lab::LabError::Unknown(name.into()))?;
    lab.throttle.join(std::process::id())?;
    let (first, rest) = program.split_first().context("no program")?;
    let error = std::process::Command::new(first).args(rest).exec();
    Err(error).with_context(|| format!("starting {first}"))
}
