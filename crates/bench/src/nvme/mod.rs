//! `bench nvme`: an initiator without a kernel that loads any NVMe/TCP target.
//!
//! Polls its sockets, measures the latency of each command and verifies each block read. Two
//! targets are measured in alternation. Without an address it uses a pool in this process, on cores
//! of its own.

mod controller;
mod embedded;
mod load;
mod pdu;
mod target;
#[cfg(test)]
mod tests;

pub use controller::NvmeAddress;
use serde::Serialize;

use self::controller::QUEUE_ENTRIES;
use self::target::NvmeSystem;
use crate::disk_bench::{DiskBenchOptions, EmbeddedError, Line, measure_jobs};
use crate::suite::Suite;

/// Maximum number of queues of a job.
const QUEUES_MAX: u32 = 16;

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct NvmeOptions {
    /// Address of the target; a pool in this process if `None`.
    pub connect: Option<NvmeAddress>,
    /// Address of another target to compare with.
    pub against: Option<NvmeAddress>,
    /// The parameters that all benchmarks of disks have.
    pub disk: DiskBenchOptions,
}

/// All results.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NvmeReport {
    /// One line per job and target.
    pub lines: Vec<Line>,
}

/// A failure of the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum NvmeError {
    /// A target cannot be used.
    #[error("{target}: {source}")]
    Target {
        /// The target.
        target: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A target behaved incorrectly, which invalidates the results.
    #[error("{target}, {job}: {problem}")]
    Wrong {
        /// The target.
        target: String,
        /// The job.
        job: String,
        /// The misbehaviour.
        problem: String,
    },
    /// A parameter is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The pool in this process failed, or one of its threads.
    #[error("{0}")]
    Pool(#[from] EmbeddedError),
    /// A thread ended prematurely.
    #[error("a thread ended prematurely")]
    Ended,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Returns the jobs of the reference table.
pub fn table() -> Suite {
    match Suite::parse(include_str!("../../suites/nvme.toml")) {
        Ok(suite) => suite,
        Err(error) => panic!("{error}"),
    }
}

/// Runs the jobs. Calls `done` with each line when the rounds of its job are complete.
///
/// # Errors
/// If a target cannot be used or behaves incorrectly.
pub fn run(options: &NvmeOptions, done: impl FnMut(&Line)) -> Result<NvmeReport, NvmeError> {
    check(options)?;
    let mut systems = vec![match &options.connect {
        Some(address) => NvmeSystem::at(address, options),
        None => NvmeSystem::embedded(options)?,
    }];
    systems.extend(options.against.as_ref().map(|address| NvmeSystem::at(address, options)));
    Ok(NvmeReport { lines: measure_jobs(&options.disk, &mut systems, done)? })
}

fn check(options: &NvmeOptions) -> Result<(), NvmeError> {
    let is_foreign = options.connect.is_some() || options.against.is_some();
    options.disk.check(is_foreign).map_err(NvmeError::Invalid)?;
    for job in &options.disk.jobs {
        if job.depth == 0 || job.depth >= QUEUE_ENTRIES.into() || job.threads == 0 || job.threads > QUEUES_MAX
        {
            let name = &job.name;
            let message =
                format!("'{name}': a queue has up to 127 commands, and there are {QUEUES_MAX} queues");
            return Err(NvmeError::Invalid(message));
        }
    }
    Ok(())
}
