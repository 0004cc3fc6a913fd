//! Work that goes on after its request was answered.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// A pool is made.
    PoolCreate,
    /// A pool is opened, with recovery if it was not closed.
    PoolOpen,
    /// A pool is closed.
    PoolClose,
    /// A pool is destroyed.
    PoolDestroy,
    /// A drive is taken into a pool.
    DriveAdd,
    /// A drive is taken into a pool in place of another one.
    DriveReplace,
    /// A volume is deleted and its space freed.
    VolumeDelete,
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PoolCreate => "pool create",
            Self::PoolOpen => "pool open",
            Self::PoolClose => "pool close",
            Self::PoolDestroy => "pool destroy",
            Self::DriveAdd => "drive add",
            Self::DriveReplace => "drive replace",
            Self::VolumeDelete => "volume delete",
        })
    }
}

/// Whether it has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationState {
    /// It goes on.
    Running,
    /// It is done.
    Succeeded,
    /// It ended without having done it.
    Failed,
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Operation {
    /// Its number, in this daemon's life.
    pub id: u64,
    /// What is being done.
    pub kind: OperationKind,
    /// To what: a pool, or `pool/volume`.
    pub target: String,
    /// Whether it has ended, and how.
    pub state: OperationState,
    /// The step that it is at, in words.
    pub step: String,
    /// How far the step is, in units that the step's words name.
    pub done: Option<u64>,
    /// How far it has to go.
    pub total: Option<u64>,
    /// Counts the changes of all above, for waiting on the next one.
    pub revision: u64,
    /// How long it has run, or ran.
    pub seconds: f64,
    /// Why it failed.
    pub error: Option<crate::error::Error>,
}
