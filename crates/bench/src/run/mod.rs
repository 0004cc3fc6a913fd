//! A run of a suite: what is measured in which order, kept so that it can be gone on with after a crash.
//!
//! Owns the order of measurements and the folder of a run. Always true: a result that is in the folder is complete; what is
//! not there is measured again by a resumed run. Must not know: what systems are made of.

mod blend;
mod carry;
mod execute;
mod own_lab;
mod plan;
mod steady;
mod store;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::lab::{DriveLimits, Lab, LabPlan};
use crate::load::{LoadError, Second};
use crate::observe::Observation;
use crate::result::ReadWrite;
use crate::suite::{Case, Scaled, Scaling, Suite};
use crate::system::{SystemError, SystemInfo};

pub use execute::{Event, Run};
pub use own_lab::with_own_lab;
pub use plan::{RAW, Step, StepKind, raw_cases, steps};
pub use steady::{Steady, steadiness};
pub use store::{Store, new_id};

/// What a run is to do. Stored with it, so that it can be gone on with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// Its name.
    pub id: String,
    /// The suite, whole.
    pub suite: Suite,
    /// How it was made smaller.
    pub scaling: Scaling,
    /// What is run of it.
    pub scaled: Scaled,
    /// What is measured.
    pub targets: Vec<TargetSpec>,
    /// The drives below, as far as they are known.
    pub drives: Vec<PathBuf>,
    /// What each of them can do, as far as it is known before they are measured.
    pub limits: Option<DriveLimits>,
    /// The lab that they are of.
    pub lab: Option<Lab>,
    /// What is made for this run alone, and taken away behind it.
    #[serde(default)]
    pub own_lab: Option<LabPlan>,
    /// What was asked for and is not there, for people.
    #[serde(default)]
    pub absent: Vec<String>,
    /// Contents of drives and targets may be overwritten.
    pub overwrite: bool,
    /// How often each measurement is made.
    pub repeats: u32,
    /// The command line.
    pub command: Vec<String>,
    /// What it runs on.
    pub environment: Environment,
}

/// A target as the user named it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetSpec {
    /// Its name in tables.
    pub name: String,
    /// What it is.
    pub spec: String,
}

/// What a run runs on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Seconds since 1970.
    pub started: u64,
    /// Processor, memory, kernel.
    pub machine: String,
    /// fio's version.
    pub fio: String,
    /// Our version.
    pub gabion: String,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The step that it is of.
    pub step: String,
    /// What was measured; [`RAW`] for the drives themselves.
    pub target: String,
    /// Which time, from 1.
    pub repeat: u32,
    /// What was done.
    pub case: Case,
    /// What ran it.
    pub runner: String,
    /// When it ended, in seconds since 1970.
    pub at: u64,
    /// All instances together; nothing if it failed or was left out.
    pub all: Option<ReadWrite>,
    /// Operations a second of each instance.
    pub instance_iops: Vec<f64>,
    /// The same by the second.
    pub seconds: Vec<Second>,
    /// Whether it had settled.
    pub steady: Option<Steady>,
    /// How often it was measured until it had.
    pub attempts: u32,
    /// What the machine did meanwhile.
    pub observation: Observation,
    /// What was done to the system before, as losing a drive.
    pub state: Option<String>,
    /// Why there is no result.
    pub missing: Option<Missing>,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missing {
    /// It failed; a resumed run tries again.
    Failed(String),
    /// It was left out on purpose.
    LeftOut(String),
}

/// What a system says of itself, as stored with a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Described {
    /// The target.
    pub target: String,
    /// What it said.
    pub about: SystemInfo,
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file of the run.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file of the run does not read.
    #[error("{path}: not of a run of this release: {source}")]
    Json {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// There is no such run.
    #[error("there is no run '{id}' in {folder}: 'gabion bench runs' lists those that there are")]
    Unknown {
        /// Its name.
        id: String,
        /// Where it was looked for.
        folder: PathBuf,
    },
    /// Somebody else is at it.
    #[error("run '{0}' is under way")]
    Busy(String),
    /// A system.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The lab.
    #[error(transparent)]
    Lab(#[from] crate::lab::LabError),
    /// The drives of the run are not those that it was begun on.
    #[error("run '{0}' was begun on another lab: make it anew with the same drives, or begin a new run")]
    OtherLab(String),
    /// Somebody wants it to end.
    #[error("interrupted; what was measured is kept: 'gabion bench resume {0}' goes on")]
    Interrupted(String),
}

impl RunError {
    fn file(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::File { path: path.into(), source }
    }
}

/// True if a load was stopped by the user.
fn interrupted(error: &LoadError) -> bool {
    matches!(error, LoadError::Interrupted)
}
