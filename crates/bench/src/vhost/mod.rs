//! `bench vhost`: a front end without a virtual machine that loads any vhost-user-blk back end.
//!
//! Shares memory with the back end, polls the queues, measures the latency of each request and
//! verifies each block read. Two back ends are measured in alternation, job by job, each round
//! starting with the other one; a ratio is the median over the rounds. Without a socket it uses a
//! pool on memory drives, on cores of its own.

mod back_end;
mod calls;
mod device;
mod embedded;
mod jobs;
mod load;
mod proportion;
mod ring;
mod rounds;
mod shared;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use crate::drives::Drives;
use crate::embedded::EmbeddedError;
use crate::suite::{Job, Suite};
pub(crate) use jobs::{BLOCK_MAX, can_stamp};
pub use jobs::{Disk, disk, run_load};
pub use proportion::Share;
pub use reactor::Backend;
pub use rounds::{VhostReport, run};

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct VhostOptions {
    /// Socket of the back end; a pool on memory drives if `None`.
    pub socket: Option<PathBuf>,
    /// Socket of another back end to compare with.
    pub against: Option<PathBuf>,
    /// The jobs. Each thread is a queue.
    pub jobs: Vec<Job>,
    /// Measured time per job and round.
    pub length: Duration,
    /// Ramp-up per job.
    pub warm_up: Duration,
    /// Requests per queue and round, instead of a time; all of them count.
    pub requests: Option<u64>,
    /// Number of rounds.
    pub rounds: u32,
    /// Bytes of the disk to use.
    pub size: u64,
    /// True if the disk behind a socket may be overwritten. Otherwise only read jobs can run,
    /// without verification.
    pub overwrite: bool,
    /// Core of the load.
    pub core: Option<usize>,
    /// Cores of the pool on memory drives, one reactor each.
    pub pool_cores: Vec<usize>,
    /// The drives of the pool.
    pub drives: Drives,
    /// Bytes of each drive, unless paths are given.
    pub drive_bytes: u64,
    /// Number of disks of the pool, each with the queues of the jobs.
    pub disks: u32,
    /// Number of shards per disk; all by default.
    pub shards: Option<u16>,
    /// True to run the load on the pool's own reactors, each queue's on the reactor that serves it.
    pub beside: bool,
    /// I/O backend of these reactors.
    pub io: Backend,
    /// True to use indirect descriptor tables, as Linux does, instead of chains in the queue's
    /// table.
    pub indirect: bool,
    /// True to also measure processor time at shares of the peak load.
    pub proportion: bool,
    /// True to fail a drive of the pool after the jobs, and to repeat those that only read.
    pub degraded: bool,
}

/// Returns the jobs of the reference table.
pub fn table() -> Suite {
    match Suite::parse(include_str!("../../suites/vhost.toml")) {
        Ok(suite) => suite,
        Err(error) => panic!("{error}"),
    }
}

/// A failure of the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum VhostError {
    /// A back end cannot be used.
    #[error("{socket}: {source}")]
    BackEnd {
        /// The back end.
        socket: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A back end behaved incorrectly, which invalidates the results.
    #[error("{system}, {job}: {problem}")]
    Wrong {
        /// The back end.
        system: String,
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
    /// The run was interrupted.
    #[error("interrupted")]
    Interrupted,
    /// A thread ended prematurely.
    #[error("a thread ended prematurely")]
    Ended,
    /// A system call failed.
    #[error("{0}")]
    System(#[from] std::io::Error),
}
