//! The common part of the benchmarks of disks, `bench vhost` and `bench nvme`: the pool in this
//! process, the order of jobs and rounds, and the lines of the table.
//!
//! Does not know any protocol.

mod embedded;
mod line;
mod load_counters;
mod request_sequence;
#[cfg(test)]
pub(crate) mod testing;
mod worker;

use std::time::Duration;

use reactor::Backend;

pub use embedded::EmbeddedError;
pub(crate) use embedded::{EmbeddedPool, PoolShape, ServedVolume, pin};
use line::measure_in_turns;
pub use line::{Line, Round};
pub(crate) use load_counters::{LoadCounters, RunLength, Window};
pub(crate) use request_sequence::RequestSequence;
pub(crate) use worker::Worker;

use crate::drives::Drives;
use crate::suite::Job;

/// Maximum bytes of a request, which also fill a disk.
pub(crate) const REQUEST_MAX: u64 = 1 << 20;
/// Queue depth for filling a disk.
pub(crate) const FILL_DEPTH: u32 = 16;
/// Polling time of an idle reactor of the pool in this process: the daemon's default.
const POLL: Duration = Duration::from_micros(50);

/// The parameters that all benchmarks of disks have.
#[derive(Clone, Debug)]
pub struct DiskBenchOptions {
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
    /// True if disks outside of this process may be overwritten. Otherwise only read jobs can run
    /// on them, without verification.
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

impl DiskBenchOptions {
    /// Returns the length of a measurement.
    pub(crate) fn run_length(&self) -> RunLength {
        match self.requests {
            Some(requests) => RunLength::Requests(requests),
            None => RunLength::Time { warm_up: self.warm_up, length: self.length },
        }
    }

    /// Returns the pool in this process, with `disks` volumes of `shards` shards each.
    pub(crate) fn pool_shape(&self, disks: u32, shards: Option<u16>) -> PoolShape {
        let cores = match self.pool_cores.as_slice() {
            [] => vec![None],
            cores => cores.iter().copied().map(Some).collect(),
        };
        let (drives, drive_bytes) = (self.drives.clone(), self.drive_bytes);
        PoolShape {
            cores,
            drives,
            drive_bytes,
            volume_bytes: self.size,
            disks,
            shards,
            poll: POLL,
            io: self.io,
        }
    }

    /// Checks the parameters. `is_foreign`: a disk is outside of this process.
    pub(crate) fn check(&self, is_foreign: bool) -> Result<(), String> {
        for job in &self.jobs {
            let name = &job.name;
            if job.block_bytes == 0 || job.block_bytes > REQUEST_MAX || !job.block_bytes.is_multiple_of(4096)
            {
                return Err(format!("'{name}': requests must be multiples of 4 KiB, up to 1 MiB"));
            }
            if job.read_percent < 100 && !self.overwrite && is_foreign {
                return Err(format!(
                    "'{name}' writes and would overwrite the disk; use --overwrite to permit it"
                ));
            }
        }
        if self.jobs.is_empty() {
            return Err("at least one job is required".into());
        }
        if self.degraded && is_foreign {
            return Err("only drives of a pool in this process can be failed".into());
        }
        if self.size < REQUEST_MAX * u64::from(FILL_DEPTH) {
            return Err("the used size of the disk must be at least 16 MiB".into());
        }
        Ok(())
    }
}

/// A disk whose requests are measured.
pub(crate) trait MeasuredDisk {
    /// A failure.
    type Error;

    /// Returns the name in the table.
    fn name(&self) -> &str;

    /// True if the disk may be written, and its blocks are verified.
    fn is_stamped(&self) -> bool;

    /// Runs a job once.
    ///
    /// # Errors
    /// If the disk cannot be used or behaves incorrectly.
    fn measure(&mut self, job: &Job, length: RunLength) -> Result<Round, Self::Error>;

    /// Fails the first drive of the pool in this process.
    ///
    /// # Errors
    /// If the pool refuses it.
    fn fail_drive(&self) -> Result<(), Self::Error>;
}

/// Fills the disks, each block with its number, and runs the jobs on them in alternation. Calls
/// `done` with each line when the rounds of its job are complete.
///
/// # Errors
/// If a disk cannot be used or behaves incorrectly.
pub(crate) fn measure_jobs<D: MeasuredDisk>(
    options: &DiskBenchOptions,
    disks: &mut [D],
    mut done: impl FnMut(&Line),
) -> Result<Vec<Line>, D::Error> {
    let fill = Job {
        read_percent: 0,
        random: false,
        ..Job::random_read("filling the disk", REQUEST_MAX, FILL_DEPTH, 1)
    };
    for disk in disks.iter_mut().filter(|disk| disk.is_stamped()) {
        disk.measure(&fill, RunLength::Requests(options.size / REQUEST_MAX))?;
    }
    let mut lines = Vec::new();
    let mut run = |jobs: &[Job], disks: &mut [D]| {
        for job in jobs {
            for line in measure_in_turns(job, disks, options.rounds, options.run_length())? {
                done(&line);
                lines.push(line);
            }
        }
        Ok(())
    };
    run(&options.jobs, disks)?;
    if options.degraded {
        disks.iter().try_for_each(MeasuredDisk::fail_drive)?;
        run(&degraded(&options.jobs), disks)?;
    }
    Ok(lines)
}

/// Returns the jobs that only read, for a pool that lacks a drive.
fn degraded(jobs: &[Job]) -> Vec<Job> {
    let reads = jobs.iter().filter(|job| job.read_percent == 100).cloned();
    reads.map(|job| Job { name: format!("{}, one drive lost", job.name), ..job }).collect()
}
