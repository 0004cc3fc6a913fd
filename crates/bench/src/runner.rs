//! Runs a load with the program that reaches its target: fio for files, devices and NBD, on the
//! host, in a guest or in a pod; built-in generators for vhost-user sockets and S3 services; `rados
//! bench` for pools of Ceph clusters.
//!
//! Invariant: one runner serves all slices of a load.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::fio::{self, FioError};
use crate::guest;
use crate::load::{Load, LoadResult, Slice, Target};
use crate::objects::{self, ObjectLoadError};
use crate::pods;
use crate::rados::{self, RadosError};
use crate::suite::Job;
use crate::vhost::{self, VhostError};

/// A load that failed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A failure of fio.
    #[error(transparent)]
    Fio(FioError),
    /// A failure of the built-in generator.
    #[error(transparent)]
    Vhost(VhostError),
    /// A failure of a load of S3 requests.
    #[error(transparent)]
    Objects(ObjectLoadError),
    /// A failure of `rados bench`.
    #[error(transparent)]
    Rados(RadosError),
    /// The slices need different runners.
    #[error("cannot run one load on targets of different kinds")]
    Mixed,
    /// The run was interrupted.
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

impl From<ObjectLoadError> for LoadError {
    fn from(error: ObjectLoadError) -> Self {
        if matches!(error, ObjectLoadError::Interrupted) { Self::Interrupted } else { Self::Objects(error) }
    }
}

impl From<RadosError> for LoadError {
    fn from(error: RadosError) -> Self {
        if matches!(error, RadosError::Interrupted) { Self::Interrupted } else { Self::Rados(error) }
    }
}

/// Returns the reason why the runner of these slices cannot run a job.
pub fn refusal(slices: &[Slice], job: &Job) -> Option<&'static str> {
    if slices.iter().any(|slice| matches!(slice.target, Target::Rados(_))) {
        return rados::refusal(job);
    }
    (job.latency.is_some() && runs_in_process(slices))
        .then_some("the vhost-user load generator does not support latency targets")
}

/// True if the load runs in this process.
pub fn runs_in_process(slices: &[Slice]) -> bool {
    slices.iter().any(|slice| matches!(slice.target, Target::Vhost(_) | Target::S3(_)))
}

/// Runs a load. Its files are written to `folder` with the prefix `name`. Calls `on_start` with the
/// process id of an external runner before the load starts.
///
/// # Errors
/// See [`LoadError`].
pub fn run(
    load: &Load<'_>,
    folder: &Path,
    name: &str,
    stop: &AtomicBool,
    on_start: impl FnOnce(u32),
) -> Result<LoadResult, LoadError> {
    let runner_of = |slice: &Slice| match &slice.target {
        Target::File(_) | Target::Nbd(_) => Runner::Fio,
        Target::Vhost(_) => Runner::Vhost,
        Target::Machine { .. } => Runner::Machines,
        Target::Pod { .. } => Runner::Pods,
        Target::S3(_) => Runner::Objects,
        Target::Rados(_) => Runner::Rados,
    };
    let mut runners: Vec<Runner> = load.slices.iter().map(runner_of).collect();
    runners.dedup();
    match runners.as_slice() {
        [] | [Runner::Fio] => Ok(fio::run(load, folder, name, stop, on_start)?),
        [Runner::Vhost] => Ok(vhost::run_load(load, stop)?),
        [Runner::Machines] => Ok(guest::run_loads(load, folder, name, stop)?),
        [Runner::Pods] => Ok(pods::run_loads(load, folder, name, stop)?),
        [Runner::Rados] => Ok(rados::run_load(load, folder, name, stop, on_start)?),
        [Runner::Objects] => Ok(objects::run_load(load, folder, name, stop, on_start)?),
        _ => Err(LoadError::Mixed),
    }
}

/// The runner of a slice.
#[derive(PartialEq)]
enum Runner {
    Fio,
    Vhost,
    Machines,
    Pods,
    Objects,
    Rados,
}
