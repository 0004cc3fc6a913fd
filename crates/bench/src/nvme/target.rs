//! A target of the benchmark, and the loads on it.

use super::controller::{Controller, NvmeAddress};
use super::embedded::NvmePool;
use super::load::{NvmeLoad, NvmeLoadSpec};
use super::{NvmeError, NvmeOptions};
use crate::disk_bench::{
    DiskBenchOptions, EmbeddedPool, LoadCounters, MeasuredDisk, Round, RunLength, Window, pin,
};
use crate::suite::Job;

/// A target.
pub(super) struct NvmeSystem {
    name: String,
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
        let DiskBenchOptions { overwrite: stamped, size, core, .. } = options.disk;
        Self { name: address.to_string(), address: address.clone(), stamped, size, core, embedded: None }
    }

    /// Starts a pool in this process.
    pub(super) fn embedded(options: &NvmeOptions) -> Result<Self, NvmeError> {
        let DiskBenchOptions { size, core, .. } = options.disk;
        let pool = NvmePool::start(&options.disk.pool_shape(1, None))?;
        let (name, address) = (options.disk.drives.to_string(), pool.address.clone());
        Ok(Self { name, address, stamped: true, size, core, embedded: Some(pool) })
    }

    #[cfg(test)]
    pub(super) fn address(&self) -> &NvmeAddress {
        &self.address
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

impl MeasuredDisk for NvmeSystem {
    type Error = NvmeError;

    fn name(&self) -> &str {
        &self.name
    }

    fn is_stamped(&self) -> bool {
        self.stamped
    }

    fn measure(&mut self, job: &Job, length: RunLength) -> Result<Round, NvmeError> {
        let failed = |source| NvmeError::Target { target: self.name.clone(), source };
        let mut controller = Controller::connect(&self.address).map_err(failed)?;
        self.check(&controller, job)?;
        let spec = |queue: u32| NvmeLoadSpec {
            block_bytes: u32::try_from(job.block_bytes).unwrap_or(0),
            read_percent: job.read_percent,
            random: job.random,
            depth: u16::try_from(job.depth).unwrap_or(1),
            seed: queue,
            size: self.size,
            sector: controller.sector,
            first: self.size / job.block_bytes / u64::from(job.threads) * u64::from(queue),
            capsule: controller.capsule,
            written: self.stamped,
            verified: self.stamped,
            limit: length.limit(),
        };
        let specs: Vec<_> = (0..job.threads).map(spec).collect();
        let connected: std::io::Result<Vec<_>> = specs.iter().map(|_| controller.connect_queue()).collect();
        let queues = connected.map_err(failed)?;
        // Handshakes are not a part of the measurement.
        let window = Window::begin(length);
        let loads: Vec<_> =
            queues.into_iter().zip(specs).map(|(queue, spec)| NvmeLoad::new(queue, spec, window)).collect();
        let core = self.core;
        let run = move || {
            core.map_or(Ok(()), pin)?;
            Ok::<_, NvmeError>(drive(loads))
        };
        let running = std::thread::Builder::new().name("load".into()).spawn(run)?;
        let worker = self.embedded.as_ref().map(|served| &served.pool.worker);
        let cores = match length {
            RunLength::Time { .. } => worker.and_then(|worker| worker.cores_within(&window)),
            RunLength::Requests(_) => None,
        };
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

    fn fail_drive(&self) -> Result<(), NvmeError> {
        let pool = self.embedded.as_ref().map(|served| &served.pool);
        Ok(pool.map_or(Ok(()), EmbeddedPool::fail_drive)?)
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
