//! A load in guests: fio in each one with the same job file; the results are merged.
//!
//! Invariant: all guests start at the same time, as far as their agents allow. Each guest has its
//! own clock.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use super::{Agent, AgentError};
use crate::fio::{self, FioError};
use crate::load::{Load, LoadResult, Target};
use crate::remote_load::{PartNames, run_parts};

/// Runs a load on devices of guests. Its files are written to `folder` with the prefix `name`,
/// followed by the guest's number if there are several.
pub(crate) fn run_loads(
    load: &Load<'_>,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
) -> Result<LoadResult, FioError> {
    let host = |target: &Target| match target {
        Target::Machine { agent, .. } => Some(agent.clone()),
        _ => None,
    };
    let names = PartNames { prefix: name, host: "machine", hosts: "guests" };
    run_parts(load, names, host, |load, agent: &PathBuf, name| run_load(load, agent, folder, name, stop))
}

/// Runs a load on devices of the guest behind `agent`. Its files are written to `folder` with the
/// prefix `name`.
fn run_load(
    load: &Load<'_>,
    agent: &Path,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
) -> Result<LoadResult, FioError> {
    let (agent, job) = (Agent::new(agent), &load.job.name);
    let in_guest = |error: AgentError| match error {
        AgentError::Interrupted => FioError::Interrupted,
        error => FioError::Failed { job: job.clone(), message: error.to_string() },
    };
    let keep = |ending: &str, bytes: &[u8]| {
        let path = folder.join(format!("{name}{ending}"));
        std::fs::write(&path, bytes).map_err(|source| FioError::File { path, source })
    };
    let text = load.text();
    keep(".fio", text.as_bytes())?;
    let script = format!(
        "cd /tmp && rm -f *.fio *.json *.log && cat >{name}.fio <<'END_OF_JOB' || exit 1\n{text}\nEND_OF_JOB\n\
         fio --output-format=json+ --output={name}.json {name}.fio"
    );
    let ran = agent.run_script(&script, stop).map_err(in_guest)?;
    // The following steps take seconds with emulated processors.
    let ended = Instant::now();
    if ran.status != 0 {
        let messages = String::from_utf8_lossy(&ran.output);
        return Err(FioError::Failed { job: job.clone(), message: fio::first_error_lines(&messages) });
    }
    let fetch = |file: String| {
        let printed = agent.run_script(&format!("cat /tmp/{file}"), stop).map_err(in_guest)?;
        Ok(if printed.status == 0 { printed.output } else { Vec::new() })
    };
    let json = fetch(format!("{name}.json"))?;
    keep(".json", &json)?;
    let output = fio::parse(job, &String::from_utf8_lossy(&json))?;
    let mut seconds = Vec::new();
    if let Some(log) = load.log {
        let lines = fetch(format!("{log}_iops.log"))?;
        keep("_iops.log", &lines)?;
        seconds = fio::seconds(&String::from_utf8_lossy(&lines), load.length);
    }
    Ok(LoadResult { output, seconds, ended: Some(ended), ..LoadResult::default() })
}
