//! Operations: work that continues after its request was answered.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ImageCopy;
use crate::Error;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Creation of a pool.
    PoolCreate,
    /// Opening of a pool, with crash recovery if it was not closed cleanly.
    PoolOpen,
    /// Closing of a pool.
    PoolClose,
    /// Destruction of a pool.
    PoolDestroy,
    /// Addition of a drive to a pool.
    DriveAdd,
    /// Addition of a drive to a pool in place of another one.
    DriveReplace,
    /// Deletion of a volume or snapshot, until its space is freed.
    VolumeDelete,
    /// Creation of a volume from an image file.
    ImageImport,
    /// Creation of an image file from a volume.
    ImageExport,
}

impl fmt::Display for OperationKind {
    /// Writes the command that starts such an operation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PoolCreate => "pool create",
            Self::PoolOpen => "pool open",
            Self::PoolClose => "pool close",
            Self::PoolDestroy => "pool destroy",
            Self::DriveAdd => "drive add",
            Self::DriveReplace => "drive replace",
            Self::VolumeDelete => "volume delete",
            Self::ImageImport => "volume import",
            Self::ImageExport => "volume export-image",
        })
    }
}

/// State of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// It runs.
    Running,
    /// It ended successfully.
    Succeeded,
    /// It ended with an error.
    Failed,
    /// It was cancelled, and its changes were rolled back.
    Cancelled,
}

/// A step of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OperationStep {
    /// Time from the start of the operation to the start of the step.
    pub seconds: f64,
    /// Description of the step.
    pub step: String,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its number since the start of the daemon.
    pub id: u64,
    /// Its kind.
    pub kind: OperationKind,
    /// Its object: `pool` or `pool/volume`.
    pub target: String,
    /// Its state.
    pub state: OperationState,
    /// Description of the current step.
    pub step: String,
    /// The steps so far with the current one: up to 100, the newest.
    #[serde(default)]
    pub log: Vec<OperationStep>,
    /// Progress of the step, in units that its description names.
    pub done: Option<u64>,
    /// Value of `done` at the end of the step.
    pub total: Option<u64>,
    /// True while it runs and can be cancelled.
    #[serde(default)]
    pub cancellable: bool,
    /// Number of changes of this operation so far. `after` in a query waits for a higher one.
    pub revision: u64,
    /// Time that it has run, or ran.
    pub seconds: f64,
    /// Reason of its failure.
    pub error: Option<Error>,
    /// Result of a copy of an image that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageCopy>,
}

/// Options for waiting on an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OperationQuery {
    /// Respond when the revision of the operation is higher than this, or the operation has ended.
    #[serde(default)]
    pub after: Option<u64>,
    /// Respond after this many seconds at the latest: up to 60, and 0 if absent.
    #[serde(default)]
    pub wait: Option<u64>,
}
