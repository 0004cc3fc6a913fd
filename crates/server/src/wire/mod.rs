//! What goes over the API, as Rust types: the only description of it, from which the OpenAPI document is made.
//!
//! Sizes are bytes, times are seconds since 1970, durations are seconds. A field that is absent is not known. Nothing of
//! the engine's or the format's types is in here.

mod check;
mod daemon;
mod drive;
mod event;
mod export;
mod operation;
mod pool;
mod salvage;
mod scrub;
mod snapshot;
mod volume;

pub use check::{CheckFinding, CheckReport, Damage};
pub use daemon::{Daemon, Version};
pub use drive::{
    AddDrive, DriveState, Finding, IdentifiedDrive, IdentifyDrives, PoolDrive, PoolOnDrive, ReturnDrive,
};
pub use event::{Event, Severity};
pub use export::{CreateExport, DeleteExport, Export, ExportState, Protocol};
pub use operation::{Operation, OperationKind, OperationState};
pub use pool::{
    ClosePool, Counters, CreatePool, FileDrives, Health, LimitRepair, LostRange, OpenPool, OpenReport, Pool,
    PoolState, Problem, Repair, RepairState, Space, UsersLately,
};
pub use salvage::{ByteRange, Salvaged, SalvagedDrive, SalvagedImage, SalvagedVolume, UnreadableRange};
pub use scrub::{ChangeScrub, Scrub, ScrubResult};
pub use snapshot::{Change, Changes, CloneSnapshot, RollBack, TakeSnapshot, Usage};
pub use volume::{CreateVolume, ResizeVolume, Service, Volume};

pub use crate::error::{Error, ErrorKind};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How every failure is answered.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorAnswer {
    /// What went wrong.
    pub error: Error,
}
