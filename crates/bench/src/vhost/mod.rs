//! `bench vhost`: a front end of our own, without a machine, that drives any vhost-user-blk back end.
//!
//! It shares memory with the back end, polls the queues, times each request and looks whether each block that is read is
//! the one that was asked for. Two back ends are measured in turns, job by job, each round beginning with the other one;
//! a ratio is the median over the rounds. Without a socket it drives a pool on memory drives, on cores of its own.
//!
//! Must not know: what is behind a socket.

mod device;
mod embedded;
mod jobs;
mod line;
mod load;
mod proportion;
mod ring;
mod rounds;
mod shared;
#[cfg(test)]
mod tests;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use crate::suite::{Job, Suite};
pub(crate) use jobs::{BLOCK_MAX, marks};
pub use jobs::{Disk, disk, run_load};
pub use line::{Line, Report, Round, Share};
pub use reactor::Backend;
pub use rounds::run;

/// What to measure, on what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The back end's socket; a pool on memory drives without one.
    pub socket: Option<PathBuf>,
    /// Another one, to compare with.
    pub against: Option<PathBuf>,
    /// The jobs. Their threads are queues.
    pub jobs: Vec<Job>,
    /// How long each job runs in each round, after the warm-up.
    pub length: Duration,
    /// How long each job runs before it counts.
    pub warm_up: Duration,
    /// Requests on each queue in each round, all of which count, instead of a time.
    pub requests: Option<u64>,
    /// How often.
    pub rounds: u32,
    /// Bytes of the disk that are used.
    pub size: u64,
    /// What a disk behind a socket holds may be overwritten. Without it, only reading jobs can be run, unverified.
    pub overwrite: bool,
    /// The core of the load.
    pub core: Option<usize>,
    /// The cores of the pool on memory drives, one reactor each.
    pub pool_cores: Vec<usize>,
    /// Bytes of each of its drives.
    pub drive_bytes: usize,
    /// How many disks that pool serves, each with the queues of the jobs.
    pub disks: u32,
    /// How many of its shards each of them is on; all if not said.
    pub shards: Option<u16>,
    /// The load runs on the pool's own reactors, each queue's beside the queue.
    pub beside: bool,
    /// How those reactors do I/O.
    pub io: Backend,
    /// Requests use indirect tables of descriptors, as Linux does, instead of chains in the queue's own.
    pub indirect: bool,
    /// Processor time at parts of the peak, too.
    pub proportion: bool,
}

/// The jobs of the reference table.
pub fn table() -> Suite {
    match Suite::parse(include_str!("../../suites/vhost.toml")) {
        Ok(suite) => suite,
        Err(error) => panic!("{error}"),
    }
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum VhostError {
    /// A back end cannot be used.
    #[error("{socket}: {source}")]
    BackEnd {
        /// Where it is.
        socket: String,
        /// Why.
        source: std::io::Error,
    },
    /// A back end did something wrong, so that figures would mean nothing.
    #[error("{system}, {job}: {what}")]
    Wrong {
        /// Which one.
        system: String,
        /// When.
        job: String,
        /// What.
        what: String,
    },
    /// What is asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// Memory for the drives could not be had.
    #[error("no memory for the drives: {0}")]
    Memory(reactor::IoError),
    /// The engine failed.
    #[error("{0}")]
    Engine(#[from] engine::Error),
    /// No way to do I/O.
    #[error("{0}")]
    Platform(reactor::PlatformError),
    /// A core that is not there, or not ours.
    #[error("cannot run on core {core}: {source}")]
    Pin {
        /// Its number.
        core: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody wants it to end.
    #[error("interrupted")]
    Interrupted,
    /// A thread ended early.
    #[error("a thread has ended before its work")]
    Ended,
    /// The system refused something.
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Keeps this thread on one core.
fn pin(core: usize) -> Result<(), VhostError> {
    let failed = |source: rustix::io::Errno| VhostError::Pin { core, source: source.into() };
    if core >= rustix::thread::CpuSet::MAX_CPU {
        return Err(failed(rustix::io::Errno::INVAL));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    rustix::thread::sched_setaffinity(None, &set).map_err(failed)
}
