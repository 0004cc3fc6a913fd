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

use std::time::Duration;

pub use controller::NvmeAddress;
use reactor::Backend;
use serde::Serialize;

use self::controller::QUEUE_ENTRIES;
use self::target::{FILL_BYTES, NO_TIME_LIMIT, NvmeSystem};
use crate::drives::Drives;
use crate::embedded::EmbeddedError;
use crate::line::{self, Line};
use crate::suite::{Job, Suite};

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct NvmeOptions {
    /// Address of the target; a pool in this process if `None`.
    pub connect: Option<NvmeAddress>,
    /// Address of another target to compare with.
    pub against: Option<NvmeAddress>,
    /// The jobs. Each thread is a queue.
    pub jobs: Vec<Job>,
    /// Measured time per job and round.
    pub length: Duration,
    /// Ramp-up per job.
    pub warm_up: Duration,
    /// Commands per queue and round, instead of a time; all of them count.
    pub requests: Option<u64>,
    /// Number of rounds.
    pub rounds: u32,
    /// Bytes of the namespace to use.
    pub size: u64,
    /// True if namespaces at the addresses may be overwritten. Otherwise only read jobs can run,
    /// without verification.
    pub overwrite: bool,
    /// Core of the load.
    pub core: Option<usize>,
    /// Cores of the pool in this process, one reactor each.
    pub pool_cores: Vec<usize>,
    /// The drives of the pool.
    pub drives: Drives,
    /// Bytes of each drive, unless paths are given.
    pub drive_bytes: u64,
    /// I/O backend of the reactors.
    pub io: Backend,
    /// True to fail a drive of the pool after the jobs, and to repeat those that only read.
    pub degraded: bool,
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
pub fn run(options: &NvmeOptions, mut done: impl FnMut(&Line)) -> Result<NvmeReport, NvmeError> {
    check(options)?;
    let mut systems = vec![match &options.connect {
        Some(address) => NvmeSystem::at(address, options),
        None => NvmeSystem::embedded(options)?,
    }];
    systems.extend(options.against.as_ref().map(|address| NvmeSystem::at(address, options)));
    for system in &mut systems {
        system.fill()?;
    }
    let mut report = NvmeReport::default();
    let mut run = |jobs: &[Job], systems: &mut Vec<NvmeSystem>| {
        for job in jobs {
            let measure = |system: &mut NvmeSystem| match options.requests {
                None => system.measure(job, None, options.warm_up, options.length),
                limit => system.measure(job, limit, Duration::ZERO, NO_TIME_LIMIT),
            };
            for line in line::measure_in_turns(job, systems, options.rounds, |system| &system.name, measure)?
            {
                done(&line);
                report.lines.push(line);
            }
        }
        Ok::<_, NvmeError>(())
    };
    run(&options.jobs, &mut systems)?;
    if options.degraded {
        systems.iter().try_for_each(NvmeSystem::fail_drive)?;
        run(&line::degraded(&options.jobs), &mut systems)?;
    }
    Ok(report)
}

fn check(options: &NvmeOptions) -> Result<(), NvmeError> {
    let invalid = |message: String| Err(NvmeError::Invalid(message));
    let addressed = options.connect.is_some() || options.against.is_some();
    for job in &options.jobs {
        let name = &job.name;
        if job.block_bytes == 0 || job.block_bytes > FILL_BYTES || !job.block_bytes.is_multiple_of(4096) {
            return invalid(format!("'{name}': commands must be multiples of 4 KiB, up to 1 MiB"));
        }
        if job.depth == 0 || job.depth >= QUEUE_ENTRIES.into() || job.threads == 0 || job.threads > 16 {
            return invalid(format!("'{name}': a queue has up to 127 commands, and there are 16 queues"));
        }
        if job.read_percent < 100 && !options.overwrite && addressed {
            return invalid(format!(
                "'{name}' writes and would overwrite the namespace; use --overwrite to permit it"
            ));
        }
    }
    if options.degraded && addressed {
        return invalid("only drives of a pool in this process can be failed".into());
    }
    if options.jobs.is_empty() {
        return invalid("at least one job is required".into());
    }
    if options.size < FILL_BYTES {
        return invalid("the used size of the namespace must be at least 1 MiB".into());
    }
    Ok(())
}
