//! A load within a machine: fio there, with the same job file; what it says comes back.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use super::{Agent, AgentError};
use crate::fio::{self, FioError};
use crate::load::{Load, Ran};

/// Runs a load on devices of the machine behind `agent`; its files go into `folder` and begin with `name`.
pub(crate) fn run_load(
    load: &Load<'_>,
    agent: &Path,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
) -> Result<Ran, FioError> {
    let (agent, job) = (Agent::new(agent), &load.job.name);
    let told = |error: AgentError| match error {
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
    let ran = agent.ask(&script, stop).map_err(told)?;
    if ran.status != 0 {
        let said = String::from_utf8_lossy(&ran.output);
        return Err(FioError::Failed { job: job.clone(), message: fio::first_words(&said) });
    }
    let fetch = |file: String| {
        let said = agent.ask(&format!("cat /tmp/{file}"), stop).map_err(told)?;
        Ok(if said.status == 0 { said.output } else { Vec::new() })
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
    Ok(Ran { output, seconds })
}
