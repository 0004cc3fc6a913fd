//! Runs jobs with fio and reads its results.
//!
//! Invariant: the job file and all output of fio are kept in the run's folder.

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

/// Options of a single job on a single target.
#[derive(Clone, Debug)]
pub struct FioRun<'a> {
    /// The job.
    pub job: &'a Job,
    /// The target.
    pub target: &'a Target,
    /// Bytes of the target to use.
    pub size: u64,
    /// Measured seconds.
    pub seconds: u64,
    /// Maximum number of threads, if less than the job's.
    pub threads: u32,
    /// Folder for the job file and fio's raw output.
    pub folder: &'a Path,
}

/// A failure of fio.
#[derive(Debug, thiserror::Error)]
pub enum FioError {
    /// A file of the run could not be read or written, or a target does not exist.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// fio could not be started.
    #[error("cannot start fio: {0}; install it with './run setup' or the package 'fio' of your distribution")]
    Start(std::io::Error),
    /// fio reported an error.
    #[error("fio failed on job '{job}': {message}")]
    Failed {
        /// The job.
        job: String,
        /// fio's message.
        message: String,
    },
    /// fio's output could not be parsed.
    #[error("cannot parse the output of fio for job '{job}': {source}")]
    Output {
        /// The job.
        job: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// Returns fio's version if it is installed with NBD support.
pub fn with_nbd() -> Option<String> {
    let engines = Command::new("fio").arg("--enghelp").stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&engines.stdout);
    text.split_whitespace().any(|engine| engine == "nbd").then(version)?
}

/// Returns fio's version if it is installed.
pub fn version() -> Option<String> {
    let version = Command::new("fio").arg("--version").output().ok()?;
    version.status.success().then(|| String::from_utf8_lossy(&version.stdout).trim().to_owned())
}

/// Runs a load. Its files are written to `folder` with the prefix `name`. Calls `on_start` with the
/// process id before fio runs.
///
/// # Errors
/// See [`FioError`].
pub(crate) fn run(
    load: &Load<'_>,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
    on_start: impl FnOnce(u32),
) -> Result<LoadResult, FioError> {
    let file = |ending: &str| folder.join(format!("{name}{ending}"));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| FioError::File { path, source }
    };
    for slice in load.slices {
        // fio itself would not name it.
        if let Target::File(path) = &slice.target {
            std::fs::metadata(path).map_err(failed(path))?;
        }
    }
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
    on_start(child.id());
    let status = loop {
        match child.try_wait().map_err(FioError::Start)? {
            Some(status) => break status,
            None if stop.load(Ordering::Relaxed) => {
                // The results of an interrupted load are of no use.
                child.kill().and_then(|()| child.wait()).map_err(FioError::Start)?;
                return Err(FioError::Interrupted);
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    if stop.load(Ordering::Relaxed) {
        // fio received the same signal as this process.
        return Err(FioError::Interrupted);
    }
    let text = std::fs::read_to_string(&json).unwrap_or_default();
    let messages = std::fs::read_to_string(&errors).unwrap_or_default();
    if messages.is_empty() {
        let _ = std::fs::remove_file(&errors);
    }
    if !status.success() {
        let mut candidates = [first_error_lines(&messages), last_line(&text)].into_iter();
        let message = candidates.find(|message| !message.is_empty());
        let message = message.unwrap_or_else(|| format!("it exited with {status}"));
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
    Ok(LoadResult { output, seconds, ..LoadResult::default() })
}

/// Returns the per-second results within the measurement from fio's log.
pub(crate) fn seconds(log: &str, length: Length) -> Vec<Second> {
    let mut seconds = output::parse_log(log);
    // Operations that complete after the end were already in flight.
    if let Length::Seconds { run, .. } = length {
        seconds.retain(|second| second.at <= run);
    }
    seconds
}

impl FioRun<'_> {
    /// Returns the job to run: fewer threads, and new contents for each write.
    fn job(&self) -> Job {
        let mut job = self.job.clone();
        job.threads = self.threads.min(job.threads);
        job.refill = true;
        // Plain files and exports need not support the device-specific options of the suite's
        // document.
        job.engine = Engine::IoUring;
        (job.polled, job.fixed_buffers, job.registered_files) = (false, false, false);
        job
    }

    /// Runs the job.
    ///
    /// # Errors
    /// See [`FioError`].
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

/// Returns the first distinct error lines of a failed fio run; each of its threads repeats them.
pub(crate) fn first_error_lines(text: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !lines.contains(&line) && lines.len() < 3 {
            lines.push(line);
        }
    }
    lines.join("; ")
}

/// Returns the last line of a failed fio run.
fn last_line(text: &str) -> String {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

/// Returns a file name for a job.
pub(crate) fn file_name(job: &str) -> String {
    job.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}
