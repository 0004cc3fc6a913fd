//! Runs the phases of a deployment and records the steps.
//!
//! Always true: hosts of a phase run at the same time unless it is serial; the steps of a host run
//! in order, and end at its first failure; later phases run only if all steps succeeded.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::perform::Deployment;
use crate::progress::{Progress, StepOutcome, StepReport};
use crate::steps::{Phase, Step};
use crate::workspace::Workspace;
use ceph::{Error, ErrorKind, Result};

/// File with the reports of the newest deployment.
const RECORD: &str = "steps.json";

/// Returns the reports of a dry run.
pub(crate) fn dry_run(cluster: &str, phases: &[Phase], progress: Progress) -> Vec<StepReport> {
    let report = |step: &Step| StepReport {
        host: step.place(cluster).to_owned(),
        step: step.name(),
        outcome: StepOutcome::Planned,
        error: None,
        seconds: 0.0,
    };
    let reports: Vec<StepReport> = phases.iter().flat_map(|phase| &phase.steps).map(report).collect();
    reports.iter().for_each(progress);
    reports
}

/// Performs all phases.
///
/// # Errors
/// The failures of the first phase that fails.
pub(crate) fn run(
    workspace: &Workspace,
    deployment: &Deployment,
    phases: &[Phase],
    progress: Progress,
) -> Result<Vec<StepReport>> {
    let reports = Mutex::new(Vec::new());
    for phase in phases {
        let perform = |steps: &[&Step]| -> Result<()> {
            for step in steps {
                let report = perform_one(deployment, step);
                progress(&report);
                let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
                reports.push(report.clone());
                // The record is for readers: a deployment looks at the hosts instead.
                workspace.save(RECORD, &*reports)?;
                drop(reports);
                if let Some(error) = report.error {
                    return Err(Error::new(
                        ErrorKind::Io,
                        format!("{}: {}: {error}", report.host, report.step),
                    ));
                }
            }
            Ok(())
        };
        let hosts = phase.by_host();
        let results: Vec<Result<()>> = if phase.serial {
            hosts.values().map(|steps| perform(steps)).collect()
        } else {
            thread::scope(|scope| {
                let threads: Vec<_> = hosts.values().map(|steps| scope.spawn(|| perform(steps))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
            })
        };
        let failures: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
        if let Some(first) = failures.first() {
            let text: Vec<String> = failures.iter().map(ToString::to_string).collect();
            let error = Error::new(first.kind(), text.join("; "));
            return Err(error.hint("the next 'gabion cluster deploy' continues with the steps that remain"));
        }
    }
    Ok(reports.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn panicked() -> Error {
    Error::new(ErrorKind::Io, "a thread of the deployment panicked")
}

fn perform_one(deployment: &Deployment, step: &Step) -> StepReport {
    let start = Instant::now();
    let result = deployment.perform(step);
    let (outcome, error) = match result {
        Ok(true) if !step.is_wait() => (StepOutcome::Changed, None),
        Ok(_) => (StepOutcome::Unchanged, None),
        Err(error) => {
            let hint = error.hint_text().map_or_else(String::new, |hint| format!(" ({hint})"));
            (StepOutcome::Failed, Some(format!("{error}{hint}")))
        }
    };
    StepReport {
        host: step.place(&deployment.cluster).to_owned(),
        step: step.name(),
        outcome,
        error,
        seconds: start.elapsed().as_secs_f64(),
    }
}
