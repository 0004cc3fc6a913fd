//! Jobs run by fio: the job file, the call, and what its JSON says.
//!
//! Must not know: who asks, what the target is beyond where fio finds it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::result::{JobResult, Side};
use crate::suite::Job;

/// Where a job's operations go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// An NBD export, by URI.
    Nbd(String),
    /// A file or block device.
    File(PathBuf),
}

/// How a job is run.
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
    #[error("fio cannot be started: {0}")]
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

impl FioRun<'_> {
    /// The job file.
    pub fn job_file(&self) -> String {
        let job = self.job;
        let direction = match (job.random, job.read_percent) {
            (true, 100) => "randread",
            (true, 0) => "randwrite",
            (true, _) => "randrw",
            (false, 100) => "read",
            (false, 0) => "write",
            (false, _) => "rw",
        };
        let target = match self.target {
            Target::Nbd(uri) => format!("ioengine=nbd\nuri={uri}"),
            Target::File(path) => format!("ioengine=io_uring\nfilename={}\ndirect=1", path.display()),
        };
        let mixed = if job.is_mixed() { format!("rwmixread={}\n", job.read_percent) } else { String::new() };
        // Sequential threads each have a part of their own, as in the document.
        let offset =
            if job.random { "norandommap=1\nrandom_generator=lfsr\n" } else { "offset_increment=20%\n" };
        let threads = self.threads.min(job.threads);
        format!(
            "[global]\n{target}\nsize={}\ntime_based=1\nramp_time=1\nruntime={}\nthread=1\ngroup_reporting=1\n\
             percentile_list=50:99:99.95\nrefill_buffers=1\n\n[{}]\nrw={direction}\n{mixed}bs={}\niodepth={}\nnumjobs={threads}\n{offset}",
            self.size, self.seconds, job.name, job.block_bytes, job.depth
        )
    }

    /// Runs it.
    ///
    /// # Errors
    /// Why there is no result.
    pub fn run(&self) -> Result<JobResult, FioError> {
        let name = file_name(&self.job.name);
        let (job_file, output) =
            (self.folder.join(format!("{name}.fio")), self.folder.join(format!("{name}.json")));
        std::fs::write(&job_file, self.job_file())
            .map_err(|source| FioError::File { path: job_file.clone(), source })?;
        let ran = Command::new("fio")
            .arg("--output-format=json+")
            .arg(format!("--output={}", output.display()))
            .arg(&job_file)
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .output()
            .map_err(FioError::Start)?;
        let text =
            std::fs::read_to_string(&output).map_err(|source| FioError::File { path: output, source })?;
        if !ran.status.success() {
            let message = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
            let message = if message.is_empty() { last_words(&text) } else { message };
            return Err(FioError::Failed { job: self.job.name.clone(), message });
        }
        parse(&self.job.name, &text)
    }
}

/// What a failed run says last.
fn last_words(text: &str) -> String {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").trim().to_owned()
}

fn file_name(job: &str) -> String {
    job.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

#[derive(Deserialize)]
struct Output {
    #[serde(rename = "fio version")]
    version: String,
    jobs: Vec<OutputJob>,
}

#[derive(Deserialize)]
struct OutputJob {
    read: OutputSide,
    write: OutputSide,
}

#[derive(Deserialize)]
struct OutputSide {
    total_ios: u64,
    iops: f64,
    bw_bytes: f64,
    clat_ns: Latency,
    lat_ns: Mean,
}

#[derive(Deserialize)]
struct Mean {
    mean: f64,
}

#[derive(Deserialize)]
struct Latency {
    #[serde(default)]
    percentile: std::collections::BTreeMap<String, f64>,
}

/// Reads fio's JSON, in front of which it may have put warnings.
fn parse(job: &str, text: &str) -> Result<JobResult, FioError> {
    let start = text.find('{').unwrap_or(0);
    let json = text.get(start..).unwrap_or_default();
    let output: Output =
        serde_json::from_str(json).map_err(|source| FioError::Output { job: job.into(), source })?;
    let side = |pick: fn(&OutputJob) -> &OutputSide| {
        let found = output.jobs.first().map(pick).filter(|side| side.total_ios > 0)?;
        let percentile = |name: &str| found.clat_ns.percentile.get(name).copied().unwrap_or(0.0) / 1000.0;
        Some(Side {
            iops: found.iops,
            bytes_per_s: found.bw_bytes,
            mean_us: found.lat_ns.mean / 1000.0,
            p50_us: percentile("50.000000"),
            p99_us: percentile("99.000000"),
            p9995_us: percentile("99.950000"),
        })
    };
    let (read, write) = (side(|job| &job.read), side(|job| &job.write));
    Ok(JobResult { job: job.into(), runner: output.version, read, write })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::Suite;

    #[test]
    fn job_files_say_what_the_suite_says() {
        let suite = Suite::raid_vm();
        let target = Target::Nbd("nbd+unix:///p/v?socket=/run/nbd.sock".into());
        let folder = Path::new("/nowhere");
        let file = |index: usize| {
            let job = &suite.jobs[index];
            FioRun { job, target: &target, size: 1 << 30, seconds: 3, threads: 2, folder }.job_file()
        };
        assert!(file(0).contains("rw=randread\nbs=4096\niodepth=32\nnumjobs=2\n"), "{}", file(0));
        assert!(file(2).contains("rw=randrw\nrwmixread=70\n"), "{}", file(2));
        assert!(file(4).contains("rw=write\nbs=1048576\n"), "{}", file(4));
        assert!(file(4).contains("uri=nbd+unix:///p/v?socket=/run/nbd.sock\n"));
    }

    #[test]
    fn output_is_read_behind_warnings() {
        let side = |ios: u64| {
            format!(
                r#"{{"total_ios": {ios}, "iops": 2.5, "bw_bytes": 4096, "lat_ns": {{"mean": 3000.0}},
                "clat_ns": {{"percentile": {{"50.000000": 1000, "99.000000": 2000, "99.950000": 4000}}}}}}"#
            )
        };
        let text = format!(
            "note: a warning\n{{\"fio version\": \"fio-3.33\", \"jobs\": [{{\"read\": {}, \"write\": {}}}]}}",
            side(3),
            side(0)
        );
        let result = parse("j", &text).unwrap();
        assert_eq!(result.write, None);
        let read = result.read.unwrap();
        assert_eq!((read.iops, read.mean_us, read.p50_us, read.p9995_us), (2.5, 3.0, 1.0, 4.0));
        assert!(parse("j", "fio: no such device").is_err());
    }
}
