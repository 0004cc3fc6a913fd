//! A run of a suite: the order of its measurements, stored so that it can be resumed after a crash.
//!
//! Owns the order of measurements and the folder of a run. Invariant: a result in the folder is
//! complete; a resumed run measures everything that is missing. Does not know the systems.

mod blend;
mod carry;
mod execute;
mod own_lab;
mod plan;
mod running_system;
mod steady;
mod store;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::lab::{DriveLimits, Lab, LabPlan};
use crate::load::Second;
use crate::observe::Observation;
use crate::result::{Direction, ReadWrite};
use crate::runner::LoadError;
use crate::suite::{Case, ScaledSuite, Scaling, Suite};
use crate::system::{SystemError, SystemInfo};

pub use execute::{Event, Run};
pub use own_lab::with_own_lab;
pub use plan::{RAW, Step, StepKind, raw_cases, steps};
pub use steady::{Steady, steadiness};
pub use store::{RunState, Store, new_id};

/// The plan of a run, stored with it so that it can be resumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// Name of the run.
    pub id: String,
    /// The complete suite.
    pub suite: Suite,
    /// The user's scaling.
    pub scaling: Scaling,
    /// The cases at that scale.
    pub scaled: ScaledSuite,
    /// The targets.
    pub targets: Vec<TargetSpec>,
    /// The underlying drives, if known.
    pub drives: Vec<PathBuf>,
    /// The limits of each drive, if known before they are measured.
    pub limits: Option<DriveLimits>,
    /// The lab of the drives.
    pub lab: Option<Lab>,
    /// The lab to create for this run, removed after it.
    #[serde(default)]
    pub own_lab: Option<LabPlan>,
    /// Requested systems that are not available, as text.
    #[serde(default)]
    pub absent: Vec<String>,
    /// True if drives and targets may be overwritten.
    pub overwrite: bool,
    /// Number of repeats of each measurement.
    pub repeats: u32,
    /// The command line.
    pub command: Vec<String>,
    /// The environment.
    pub environment: Environment,
}

/// A target as specified by the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpec {
    /// Name in tables.
    pub name: String,
    /// Specification.
    pub spec: String,
}

/// The environment of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Seconds since 1970.
    pub started: u64,
    /// Processor, memory, kernel.
    pub machine: String,
    /// Version of fio.
    pub fio: String,
    /// Version of gabion.
    pub gabion: String,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Key of its step.
    pub step: String,
    /// The target; [`RAW`] for the drives themselves.
    pub target: String,
    /// Number of the repeat, from 1.
    pub repeat: u32,
    /// The case.
    pub case: Case,
    /// The runner.
    pub runner: String,
    /// Time of completion, in seconds since 1970.
    pub at: u64,
    /// Merged result of all instances; `None` if it failed or was skipped.
    pub all: Option<ReadWrite>,
    /// Requests of S3 without a body, by name.
    #[serde(default)]
    pub others: BTreeMap<String, Direction>,
    /// Operations per second of each instance.
    pub instance_iops: Vec<f64>,
    /// Per-second results.
    pub seconds: Vec<Second>,
    /// True if it reached a steady state.
    pub steady: Option<Steady>,
    /// Number of attempts.
    pub attempts: u32,
    /// The observation of the machine.
    pub observation: Observation,
    /// State of the system, such as a failed drive.
    pub state: Option<String>,
    /// The reason for a missing result.
    pub missing: Option<Missing>,
}

/// The reason for a missing result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// The measurement failed; a resumed run repeats it.
    Failed(String),
    /// The measurement was skipped deliberately.
    LeftOut(String),
}

/// The description of a system, as stored with a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemRecord {
    /// The target.
    pub target: String,
    /// The description.
    pub about: SystemInfo,
}

/// The reason why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file of the run could not be accessed.
    #[error("{path}: {source}")]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file of the run could not be parsed.
    #[error("{path} is not a file of a run of this release: {source}")]
    Json {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// The run does not exist.
    #[error("run '{id}' does not exist in {folder}: 'gabion bench runs' lists the runs")]
    Unknown {
        /// Name of the run.
        id: String,
        /// The folder that was searched.
        folder: PathBuf,
    },
    /// Another process is executing the run.
    #[error("run '{0}' is in use by another process")]
    Busy(String),
    /// A system failed.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The lab failed.
    #[error(transparent)]
    Lab(#[from] crate::lab::LabError),
    /// The lab does not match the run's drives.
    #[error(
        "run '{0}' was started on another lab: recreate the lab with the same drives, or start a new run"
    )]
    OtherLab(String),
    /// The run was interrupted.
    #[error("interrupted; completed results are kept: continue with 'gabion bench resume {0}'")]
    Interrupted(String),
}

impl RunError {
    fn file(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::File { path: path.into(), source }
    }
}

/// True if the user interrupted the load.
fn interrupted(error: &LoadError) -> bool {
    matches!(error, LoadError::Interrupted)
}
