//! Wire types: the bodies and queries of the API.
//!
//! Sizes are in bytes, times are seconds since 1970, durations are seconds. A field that is absent
//! is not known.

mod access;
mod check;
mod cluster;
mod daemon;
mod drive;
mod event;
mod export;
mod host;
mod image;
mod live;
mod objects;
mod operation;
mod pool;
mod salvage;
mod scrub;
mod snapshot;
mod users;
mod volume;
mod webhooks;

pub use access::{AuditQuery, AuditRecord, CreateSession, CreateToken, CreatedToken, Identity, Role, Token};
pub use check::{CheckFinding, CheckReport, Damage};
pub use cluster::{
    Cluster, ClusterHealth, ClusterHost, ClusterOsd, ClusterPool, ClusterProblem, ClusterStatus,
};
pub use daemon::{API_VERSION, DaemonStatus, Version};
pub use drive::{
    AddDrive, DetectedContent, DetectedPool, DriveIo, DriveRequests, DriveState, IdentifiedDrive,
    IdentifyDrives, PoolDrive, ReturnDrive, SmartReport,
};
pub use event::{Event, EventQuery, PoolEventKind, Severity};
pub use export::{
    ChapOptions, CreateExport, DeleteExportQuery, DhChapOptions, Export, ExportState, NetworkOptions,
    Protocol, TlsOptions,
};
pub use host::{BenchmarkRun, BenchmarkState, HostMachine, MachineConsole, MachineInput};
pub use image::{ExportImage, ImageCopy, ImageFormat, ImportImage};
pub use live::{ExportIo, LiveStatus};
pub use objects::{
    AccessKey, Bucket, ChangeBucket, CreateBucket, CreateKey, EtagKind, ObjectPage, ObjectQuery,
    ObjectSummary, S3Service, S3State, StartS3,
};
pub use operation::{Operation, OperationKind, OperationQuery, OperationState, OperationStep};
pub use pool::{
    ChangeRebuild, ClosePool, CreatePool, FileDrives, Health, LostRange, OpenPool, OpenReport, Pool,
    PoolCounters, PoolSpace, PoolState, Problem, Rebuild, RebuildState, RecentLatency, WriteWaits,
};
pub use salvage::{ByteRange, SalvageReport, SalvagedDrive, SalvagedImage, SalvagedVolume, UnreadableRange};
pub use scrub::{ChangeScrub, Scrub, ScrubResult};
pub use snapshot::{
    CloneSnapshot, CreateSnapshot, CreateSnapshots, DiffQuery, DiffRange, RollbackVolume, VolumeDiff,
    VolumeUsage,
};
pub use users::{
    ChangeS3Group, ChangeS3Policy, ChangeS3Provider, ChangeS3Role, ChangeS3User, CreateS3Group,
    CreateS3Policy, CreateS3Provider, CreateS3Role, CreateS3User, S3Group, S3Policy, S3Provider, S3Role,
    S3User,
};
pub use volume::{CreateVolume, QosLimits, ResizeVolume, Volume};
pub use webhooks::{ChangeWebhook, CreateWebhook, Webhook, WebhookOutbox};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Error;

/// The body of every response that reports an error.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorResponse {
    /// The error.
    pub error: Error,
}
