//! Events of a pool.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Normal operation.
    Info,
    /// An administrator should look at it.
    Warning,
    /// Data or service is lost, or at risk.
    Error,
}

/// Kind of an event. The names do not change between releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolEventKind {
    /// The pool was opened after a clean close.
    PoolOpened,
    /// The pool was opened after a crash; log records were replayed.
    PoolRecovered,
    /// The pool was closed.
    PoolClosed,
    /// A drive was added.
    DriveAdded,
    /// A drive is missing.
    DriveMissing,
    /// A drive failed, or was taken out of use on request.
    DriveFailed,
    /// A missing or failed drive was returned to the pool.
    DriveReturned,
    /// A returned drive has all writes that it missed.
    DriveRebuilt,
    /// The removal of a drive began: its data is migrated to other drives.
    DriveRemoving,
    /// The removal of a drive was cancelled.
    DriveRemoveCancelled,
    /// A drive left the pool.
    DriveRemoved,
    /// Reads of a drive failed or returned wrong data.
    DriveReadErrors,
    /// A drive has read errors in so many zones that it must be replaced.
    DriveFailing,
    /// A drive holds an outdated copy of its contents.
    DriveStale,
    /// Blocks on a drive are damaged.
    BlocksDamaged,
    /// Blocks cannot be read from any drive.
    BlocksLost,
    /// One copy of a drive's superblock was damaged.
    SuperblockDamaged,
    /// Every drive has a damaged superblock copy; a newer pool state may be lost.
    StateUncertain,
    /// A scrub began.
    ScrubStarted,
    /// A scrub ended.
    ScrubFinished,
    /// A scrub was cancelled.
    ScrubCancelled,
    /// A volume was created.
    VolumeCreated,
    /// A volume was resized.
    VolumeResized,
    /// A volume or snapshot was deleted.
    VolumeDeleted,
    /// A snapshot was created.
    SnapshotCreated,
    /// A volume was cloned from a snapshot.
    VolumeCloned,
    /// A volume was rolled back to a snapshot.
    VolumeRolledBack,
    /// The pool's use of space passed a warning threshold.
    SpaceLow,
    /// The pool is full.
    PoolFull,
    /// The pool has free space again.
    SpaceAvailable,
}

impl fmt::Display for PoolEventKind {
    /// Writes the name that the API uses.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// An event of a pool. A pool keeps at least its last 800 events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Sequence number, from 1 when the pool is created, without gaps.
    pub number: u64,
    /// Time of the event.
    pub time: u64,
    /// Kind of the event.
    pub kind: PoolEventKind,
    /// Severity of the event.
    pub severity: Severity,
    /// Description of the event, one sentence.
    pub message: String,
    /// Index of the drive that the event concerns.
    pub drive: Option<u16>,
}

/// The events that a request asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Only events with higher numbers.
    #[serde(default)]
    pub after: u64,
    /// Only so many events, the newest; all that the pool has kept if absent.
    pub last: Option<usize>,
}
