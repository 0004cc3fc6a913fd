//! What is asked of whoever puts load on a target, and what comes back: the same for every way to a target.
//!
//! Owns the choice of who does it: fio for files, devices and NBD, here or within a machine; our own generator for sockets of
//! vhost-user. Always true: all places of one load are reached in the same way. Must not know: who asks.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::fio::{self, FioError};
use crate::guest;
use crate::result::Both;
use crate::suite::Job;
use crate::vhost::{self, VhostError};

/// Where a job's operations go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// An NBD export, by URI.
    Nbd(String),
    /// A file or block device.
    File(PathBuf),
    /// A socket where a disk is served to machines (vhost-user-blk).
    Vhost(PathBuf),
    /// A device within a virtual machine that was started for it.
    Machine {
        /// Where the machine is asked.
        agent: PathBuf,
        /// The device there.
        device: String,
    },
}

/// Where one instance works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// On what.
    pub target: Target,
    /// From this byte on.
    pub offset: u64,
    /// So many bytes.
    pub bytes: u64,
}

impl Slice {
    /// How far apart the threads of a sequential job begin, and what each of them goes over; nothing if all begin together.
    pub fn apart(&self, job: &Job) -> Option<(u64, u64)> {
        let percent = job.offset_increment_percent.filter(|_| !job.random)?;
        // Of the slice, in whole blocks.
        let step = self.bytes / 100 * u64::from(percent) / job.block_bytes * job.block_bytes;
        // Threads that begin further on end at the slice's end.
        let last = u64::from(job.threads.saturating_sub(1)) * step;
        Some((step, self.bytes.saturating_sub(last).max(job.block_bytes)))
    }
}

/// A load.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    /// What each instance does.
    pub job: &'a Job,
    /// The instances.
    pub slices: &'a [Slice],
    /// How long, or once over everything.
    pub length: Length,
    /// The file that what happens each second is written to; none without.
    pub log: Option<&'a str>,
    /// Everything there was written by loads of this kind, so that what is read can be told from what should be there.
    pub marked: bool,
}

/// How long a load lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So many seconds, after so many that do not count.
    Seconds {
        /// Seconds that do not count.
        ramp: f64,
        /// Seconds that do.
        run: f64,
    },
    /// Until each instance has gone over its bytes once.
    Once,
}

/// What a load did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// What ran it.
    pub version: String,
    /// Each instance, in their order.
    pub instances: Vec<Both>,
}

impl Output {
    /// All instances together.
    pub fn merged(&self) -> Both {
        let mut all = Both::default();
        self.instances.iter().for_each(|instance| all.merge(instance));
        all
    }
}

/// Operations of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// The second's end, from the beginning of the measurement, in seconds.
    pub at: f64,
    /// Reads a second.
    pub read: f64,
    /// Writes a second.
    pub write: f64,
}

/// What is known of a load that has ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ran {
    /// What it did.
    pub output: Output,
    /// The same by the second, if that was asked for.
    pub seconds: Vec<Second>,
    /// When it had ended, if that was some time before it was known: its results have come a long way since.
    pub ended: Option<Instant>,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// fio.
    #[error(transparent)]
    Fio(FioError),
    /// Our own generator.
    #[error(transparent)]
    Vhost(VhostError),
    /// Places that cannot be reached in one way.
    #[error("targets of several kinds cannot be measured as one")]
    Mixed,
    /// Somebody wants it to end.
    #[error("interrupted")]
    Interrupted,
}

impl From<FioError> for LoadError {
    fn from(error: FioError) -> Self {
        if matches!(error, FioError::Interrupted) { Self::Interrupted } else { Self::Fio(error) }
    }
}

impl From<VhostError> for LoadError {
    fn from(error: VhostError) -> Self {
        if matches!(error, VhostError::Interrupted) { Self::Interrupted } else { Self::Vhost(error) }
    }
}

/// True if the load is put on by this process itself.
pub fn is_ours(slices: &[Slice]) -> bool {
    slices.iter().any(|slice| matches!(slice.target, Target::Vhost(_)))
}

/// Runs a load; its files go into `folder` and begin with `name`. `started` is told the process that carries it, if that is
/// another one, before it begins.
///
/// # Errors
/// Why there is no result.
pub fn run(
    load: &Load<'_>,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
    started: impl FnOnce(u32),
) -> Result<Ran, LoadError> {
    let way = |slice: &Slice| match &slice.target {
        Target::File(_) | Target::Nbd(_) => Way::Fio,
        Target::Vhost(_) => Way::Vhost,
        Target::Machine { .. } => Way::Machines,
    };
    let mut ways: Vec<Way> = load.slices.iter().map(way).collect();
    ways.dedup();
    match ways.as_slice() {
        [] | [Way::Fio] => Ok(fio::run(load, folder, name, stop, started)?),
        [Way::Vhost] => Ok(vhost::run_load(load, stop)?),
        [Way::Machines] => Ok(guest::run_loads(load, folder, name, stop)?),
        _ => Err(LoadError::Mixed),
    }
}

/// How a place is reached.
#[derive(PartialEq)]
enum Way {
    Fio,
    Vhost,
    Machines,
}
