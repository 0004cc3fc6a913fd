//! `bench vhost`: a front end without a virtual machine that loads any vhost-user-blk back end.
//!
//! Shares memory with the back end, polls the queues, measures the latency of each request and
//! verifies each block read. Two back ends are measured in alternation, job by job, each round
//! starting with the other one; a ratio is the median over the rounds. Without a socket it uses a
//! pool in this process, on cores of its own: on memory drives, unless others are given.

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

use crate::disk_bench::{DiskBenchOptions, EmbeddedError};
use crate::suite::Suite;
pub(crate) use jobs::{BLOCK_MAX, can_stamp};
pub use jobs::{Disk, disk, run_load};
pub use proportion::Share;
pub use reactor::Backend;
pub use rounds::{VhostReport, run};

/// Parameters of the benchmark.
#[derive(Clone, Debug)]
pub struct VhostOptions {
    /// Socket of the back end; a pool in this process if `None`.
    pub socket: Option<PathBuf>,
    /// Socket of another back end to compare with.
    pub against: Option<PathBuf>,
    /// The parameters that all benchmarks of disks have.
    pub disk: DiskBenchOptions,
    /// Number of disks of the pool, each with the queues of the jobs.
    pub disks: u32,
    /// Number of shards per disk; all by default.
    pub shards: Option<u16>,
    /// True to run the load on the pool's own reactors, each queue's on the reactor that serves it.
    pub on_reactors: bool,
    /// True to use indirect descriptor tables, as Linux does, instead of chains in the queue's
    /// table.
    pub indirect: bool,
    /// True to also measure processor time at shares of the peak load.
    pub proportion: bool,
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
