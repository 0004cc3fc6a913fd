//! Jobs run by fio: the job file, the call, and what its JSON says.
//!
//! Always true: the job file and everything that fio said are kept in the run's folder. Must not know: who asks, what the
//! target is beyond where fio finds it.

mod job_file;
mod output;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::load::{Length, Load, LoadResult, Second, Slice, Target};
use crate::result::{Direction, JobResult};
use crate::stale_processes;
use crate::suite::{Engine, Job};

pub(crate) use output::parse;

/// How a single job is run on a single target.
#[derive(Clone, Debug)]
pub struct FioRun<'a> {
    /// What to do.
    pub job: &'a Job,
    /// On what.
    pub target: &'a Target,
    /// Bytes of the target that are used.
    pub size: u64,
    /// How long to measure, in seconds.
    pub seconds: u64,
    /// Threads, if fewer than the job's.
    pub threads: u32,
    /// Folder for the job file and fio's raw output.
    pub folder: &'a Path,
}

/// Why fio gave no result.
#[derive(Debug, thiserror::Error)]
pub enum FioError {
    /// A file of the run cannot be written or read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// fio cannot be started.
    #[error("fio cannot be started: {0}: './run setup' or your distribution's package 'fio' installs it")]
    Start(std::io::Error),
    /// It failed.
    #[error("fio failed on job '{job}': {message}")]
    Failed {
        /// The job.
        job: String,
        /// What it said.
        message: String,
    },
    /// Its output is not understood.
    #[error("the output of fio for job '{job}' is not understood: {source}")]
    Output {
        /// The job.
        job: String,
        /// Why.
        source: serde_json::Error,
    },
    /// Somebody wants it to end.
    #[error("interrupted")]
    Interrupted,
}

/// fio's version, if it is there and can use NBD.
pub fn with_nbd() -> Option<String> {
    let engines = Command::new("fio").arg("--enghelp").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&engines.stdout);
    text.split_whitespace().any(|engine| engine == "nbd").then(version)?
}

/// fio's version, if it is there.
pub fn version() -> Option<String> {
    let version = Command::new("fio").arg("--version").output().ok()?;
    version.status.success().then(|| String::from_utf8_lossy(&version.stdout).trim().to_owned())
}

/// Runs a load; its files go into `folder` and begin with `name`. `started` is told the process, which has not begun.
///
/// # Errors
/// Why there is no result.
pub(crate) fn run(
    load: &Load<'_>,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
    started: impl FnOnce(u32),
) -> Result<LoadResult, FioError> {
    let file = |ending: &str| folder.join(format!("{name}{ending}"));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FioError::File { path, source }
    };
    let (job_file, json, errors) = (file(".fio"), file(".json"), file(".stderr"));
    std::fs::write(&job_file, load.text()).map_err(failed(&job_file))?;
    let stderr = std::fs::File::create(&errors).map_err(failed(&errors))?;
    let mut command = Command::new("fio");
    stale_processes::tag(&mut command, folder).map_err(failed(folder))?;
    let mut child = command
        .arg("--output-format=json+")
        .arg(format!("--output={}", json.display()))
        .arg(&job_file)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr)
        .spawn()
        .map_err(FioError::Start)?;
    started(child.id());
    let status = loop {
        match child.try_wait().map_err(FioError::Start)? {
            Some(status) => break status,
            None if stop.load(Ordering::Relaxed) => {
                // Its figures are of no use any more.
                child.kill().and_then(|()| child.wait()).map_err(FioError::Start)?;
                return Err(FioError::Interrupted);
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if stop.load(Ordering::Relaxed) {
        // It had the same signal as we.
        return Err(FioError::Interrupted);
    }
    let text = std::fs::read_to_string(&json).unwrap_or_default();
    let said = std::fs::read_to_string(&errors).unwrap_or_default();
    if said.is_empty() {
        let _ = std::fs::remove_file(&errors);
    }
    if !status.success() {
        let mut messages = [first_words(&said), last_words(&text)].into_iter();
        let message = messages.find(|said| !said.is_empty());
        let message = message.unwrap_or_else(|| format!("it ended with {status}"));
        return Err(FioError::Failed { job: load.job.name.clone(), message });
    }
    let output = output::parse(&load.job.name, &text)?;
    let seconds = match load.log {
        None => Vec::new(),
        Some(log) => {
            let path = folder.join(format!("{log}_iops.log"));
            seconds(&std::fs::read_to_string(&path).map_err(failed(&path))?, load.length)
        }
    };
    Ok(LoadResult { output, seconds, ended: None })
}

/// The seconds of a measurement in fio's log.
pub(crate) fn seconds(log: &str, length: Length) -> Vec<Second> {
    let mut seconds = output::parse_log(log);
    // Behind the end only what was under way still comes in.
    if let Length::Seconds { run, .. } = length {
        seconds.retain(|second| second.at <= run);
    }
    seconds
}

impl FioRun<'_> {
    /// The job as it is run: fewer threads, and new contents for each write.
    fn job(&self) -> Job {
        let mut job = self.job.clone();
        job.threads = self.threads.min(job.threads);
        job.refill = true;
        // What the document asks of its devices, plain files and exports need not have.
        job.engine = Engine::IoUring;
        (job.polled, job.fixed_buffers, job.registered_files) = (false, false, false);
        job
    }

    /// Runs it.
    ///
    /// # Errors
    /// Why there is no result.
    #[allow(clippy::cast_precision_loss, reason = "seconds")]
    pub fn run(&self) -> Result<JobResult, FioError> {
        let (job, slices) =
            (self.job(), [Slice { target: self.target.clone(), offset: 0, bytes: self.size }]);
        let length = Length::Seconds { ramp: 1.0, run: self.seconds as f64 };
        let load = Load { job: &job, slices: &slices, length, log: None, stamped: false };
        let ran = run(&load, self.folder, &file_name(&job.name), &AtomicBool::new(false), |_| {})?;
        let all = ran.output.merged();
        let side = |direction: Option<Direction>| direction.map(|direction| direction.figures());
        Ok(JobResult {
            job: job.name,
            runner: ran.output.version,
            read: side(all.read),
            write: side(all.write),
        })
    }
}

/// What a failed run says first. Each of its threads says it again.
pub(crate) fn first_words(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !lines.contains(&line) && lines.len() < 3 {
            lines.push(line);
        }
    }
    lines.join("; ")
}

/// What a failed run says last.
fn last_words(text: &str) -> String {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

/// A job's name as that of a file.
pub(crate) fn file_name(job: &str) -> String {
    job.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}
