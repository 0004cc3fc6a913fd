//! `gabion lab`.

use std::os::unix::process::CommandExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use bench::lab::{Lab, LabPlan, down, models, up};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::{Global, LabCommand, LabUpArgs};
use crate::failure::Outcome;
use crate::output;

/// Does what the command says.
///
/// # Errors
/// Why it could not.
pub(crate) fn run(global: &Global, command: LabCommand) -> Result<Outcome> {
    match command {
        LabCommand::Up(arguments) => {
            let lab = make(arguments)?;
            shown(global, &[lab])
        }
        LabCommand::Down { name } => {
            let lab = down(&name)?;
            if global.json {
                super::print(&super::to_json(&lab)?)?;
            } else if !global.quiet {
                super::print(&format!("lab '{name}' is gone, with its {} drives", lab.drives.len()))?;
            }
            Ok(Outcome::Done)
        }
        LabCommand::Status => shown(global, &Lab::all()?),
        LabCommand::Models => {
            let models = models();
            let text = match (global.json, global.quiet) {
                (true, _) => super::to_json(&models)?,
                (_, true) => models.iter().map(|model| format!("{}\n", model.name)).collect(),
                _ => output::lab_models(&models),
            };
            super::print(&text)?;
            Ok(Outcome::Done)
        }
        LabCommand::Run { lab, program } => become_program(&lab, &program),
    }
}

/// Makes it; a signal has it taken away again.
fn make(arguments: LabUpArgs) -> Result<Lab> {
    let plan = LabPlan {
        name: arguments.name,
        drives: arguments.drives,
        model: arguments.model,
        fraction: arguments.fraction,
        drive_bytes: arguments.size.bytes(),
        directory: arguments.dir,
    };
    let lab = until_signal(move |stop| up(&plan, stop))??;
    Ok(lab)
}

/// Runs something that blocks, and tells it when somebody wants it to end.
pub(crate) fn until_signal<T: Send + 'static>(
    work: impl FnOnce(&Arc<AtomicBool>) -> T + Send + 'static,
) -> Result<T> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stop = Arc::new(AtomicBool::new(false));
        let shared = stop.clone();
        let mut work = tokio::task::spawn_blocking(move || work(&shared));
        loop {
            tokio::select! {
                result = &mut work => return result.context("it ended early"),
                _ = interrupt.recv() => stop.store(true, Ordering::Relaxed),
                _ = terminate.recv() => stop.store(true, Ordering::Relaxed),
            }
        }
    })
}

fn shown(global: &Global, labs: &[Lab]) -> Result<Outcome> {
    let text = match (global.json, global.quiet) {
        (true, _) => super::to_json(&labs)?,
        // Devices alone: for the command line of a pool.
        (_, true) => labs.iter().flat_map(Lab::devices).map(|path| format!("{}\n", path.display())).collect(),
        _ if labs.is_empty() => "there is no lab: 'gabion lab up' makes one".into(),
        _ => output::labs(labs),
    };
    super::print(&text)?;
    Ok(Outcome::Done)
}

fn become_program(name: &str, program: &[String]) -> Result<Outcome> {
    let lab = Lab::find(name)?.ok_or_else(|| bench::lab::LabError::Unknown(name.into()))?;
    lab.throttle.join(std::process::id())?;
    let (first, rest) = program.split_first().context("no program")?;
    let error = std::process::Command::new(first).args(rest).exec();
    Err(error).with_context(|| format!("starting {first}"))
}
