//! A target of the benchmark, and the loads on it.

use std::time::{Duration, Instant};

use super::controller::{Controller, NvmeAddress};
use super::embedded::NvmePool;
use super::load::{NvmeLoad, NvmeLoadSpec};
use super::{NvmeError, NvmeOptions};
use crate::embedded::{EmbeddedPool, PoolShape, pin};
use crate::line::Round;
use crate::load_counters::{LoadCounters, Window};
use crate::suite::Job;

/// Bytes of a command that fills the namespace.
pub(super) const FILL_BYTES: u64 = 1 << 20;
/// Queue depth for filling a namespace.
const FILL_DEPTH: u32 = 8;
/// The time limit of a load that ends with its last command.
pub(super) const NO_TIME_LIMIT: Duration = Duration::from_secs(7 * 86_400);
/// Polling time of an idle reactor of the pool: the daemon's default.
const POLL: Duration = Duration::from_micros(50);

/// A target.
pub(super) struct NvmeSystem {
    pub(super) name: String,
    address: NvmeAddress,
    stamped: bool,
    size: u64,
    core: Option<usize>,
    /// The pool in this process, if that is the target.
    embedded: Option<NvmePool>,
}

impl NvmeSystem {
    /// The target at an address.
    pub(super) fn at(address: &NvmeAddress, options: &NvmeOptions) -> Self {
        let NvmeOptions { overwrite: stamped, size, core, .. } = *options;
        Self { name: address.to_string(), address: address.clone(), stamped, size, core, embedded: None }
    }

    /// Starts a pool in this process.
    pub(super) fn embedded(options: &NvmeOptions) -> Result<Self, NvmeError> {
        let NvmeOptions { drive_bytes, size, core, io, .. } = *options;
        let pool = NvmePool::start(&PoolShape {
            cores: PoolShape::cores(&options.pool_cores),
            drives: options.drives.clone(),
            drive_bytes,
            volume_bytes: size,
            disks: 1,
            shards: None,
            poll: POLL,
            io,
        })?;
        let (name, address) = (options.drives.to_string(), pool.address.clone());
        Ok(Self { name, address, stamped: true, size, core, embedded: Some(pool) })
    }

    #[cfg(test)]
    pub(super) fn address(&self) -> &NvmeAddress {
        &self.address
    }

    /// Writes the used part of the namespace, each block with its number.
    pub(super) fn fill(&mut self) -> Result<(), NvmeError> {
        if !self.stamped {
            return Ok(());
        }
        let job = Job {
            read_percent: 0,
            random: false,
            ..Job::random_read("filling the namespace", FILL_BYTES, FILL_DEPTH, 1)
        };
        self.measure(&job, Some(self.size / FILL_BYTES), Duration::ZERO, NO_TIME_LIMIT).map(drop)
    }

    /// Fails the first drive of the pool in this process.
    pub(super) fn fail_drive(&self) -> Result<(), NvmeError> {
        let pool = self.embedded.as_ref().map(|served| &served.pool);
        Ok(pool.map_or(Ok(()), EmbeddedPool::fail_drive)?)
    }

    /// Runs a job once.
    pub(super) fn measure(
        &mut self,
        job: &Job,
        limit: Option<u64>,
        warm_up: Duration,
        length: Duration,
    ) -> Result<Round, NvmeError> {
        let failed = |source| NvmeError::Target { target: self.name.clone(), source };
        let mut controller = Controller::connect(&self.address).map_err(failed)?;
        self.check(&controller, job)?;
        let window = Window { start: Instant::now(), warm_up, length };
        let spec = |queue: u32| NvmeLoadSpec {
            block_bytes: u32::try_from(job.block_bytes).unwrap_or(0),
            read_percent: job.read_percent,
            random: job.random,
            depth: u16::try_from(job.depth).unwrap_or(1),
            seed: queue.into(),
            size: self.size,
            sector: controller.sector,
            first: self.size / job.block_bytes / u64::from(job.threads) * u64::from(queue),
            capsule: controller.capsule,
            written: self.stamped,
            verified: self.stamped,
            limit: limit.unwrap_or(u64::MAX),
        };
        let specs: Vec<_> = (0..job.threads).map(spec).collect();
        let mut loads = Vec::new();
        for spec in specs {
            loads.push(NvmeLoad::new(controller.connect_queue().map_err(failed)?, spec, window));
        }
        let core = self.core;
        let run = move || {
            core.map_or(Ok(()), pin)?;
            Ok::<_, NvmeError>(drive(loads))
        };
        let running = std::thread::Builder::new().name("load".into()).spawn(run)?;
        let worker = self.embedded.as_ref().map(|served| &served.pool.worker);
        let cores = worker.filter(|_| limit.is_none()).and_then(|worker| worker.cores_within(&window));
        let (counted, problem) = running.join().map_err(|_| NvmeError::Ended)??;
        let wrong =
            |problem: String| NvmeError::Wrong { target: self.name.clone(), job: job.name.clone(), problem };
        let count = counted.iter().map(|load| load.failed).sum::<u64>();
        if let Some(problem) = problem {
            return Err(wrong(problem));
        }
        if counted.iter().any(|load| load.stuck) {
            return Err(wrong("a command did not complete within a minute".into()));
        }
        if count > 0 {
            return Err(wrong(format!("{count} commands failed")));
        }
        Ok(Round::of(counted, job.block_bytes, cores))
    }

    fn check(&self, controller: &Controller, job: &Job) -> Result<(), NvmeError> {
        let invalid = |message: String| Err(NvmeError::Invalid(format!("{}: {message}", self.name)));
        if controller.bytes < self.size {
            return invalid(format!(
                "the namespace has {} bytes; {} are required",
                controller.bytes, self.size
            ));
        }
        if let Some(limit) = controller.transfer_max.filter(|limit| *limit < job.block_bytes) {
            return invalid(format!("a command transfers up to {limit} bytes, not {}", job.block_bytes));
        }
        Ok(())
    }
}

/// Runs loads on this thread until all have ended. The thread polls: a wake-up of its own is not a
/// property of the target.
fn drive(mut loads: Vec<NvmeLoad>) -> (Vec<LoadCounters>, Option<String>) {
    let (mut counted, mut problem) = (Vec::new(), None);
    while !loads.is_empty() && problem.is_none() {
        let mut index = 0;
        while let Some(load) = loads.get_mut(index) {
            if !load.poll() {
                index += 1;
                continue;
            }
            let mut ended = loads.swap_remove(index);
            problem = problem.or(ended.problem.take());
            counted.push(ended.counted);
        }
    }
    (counted, problem)
}
