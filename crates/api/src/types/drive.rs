//! Drives: those of pools, and the contents of other drives.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Error;

/// State of a drive in its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// In use.
    Online,
    /// In use while its data is migrated to other drives; it leaves the pool when it is empty.
    Removing,
    /// In use again after it was missing or failed; writes that it missed are being rebuilt.
    Returning,
    /// Absent when the pool was opened, or disappeared while the pool was open.
    Missing,
    /// Failed a write or a flush, or was taken out of use on request.
    Failed,
    /// No longer part of the pool.
    Removed,
    /// The pool is not open, so the state of the drive is not known.
    Unknown,
}

/// A drive of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolDrive {
    /// Name of the pool.
    pub pool: String,
    /// Index of the drive in the pool.
    pub index: Option<u16>,
    /// Identifier of the drive.
    pub id: Option<String>,
    /// Path by which it was opened.
    pub path: String,
    /// Capacity in bytes.
    pub size: Option<u64>,
    /// State of the drive.
    pub state: DriveState,
    /// Bytes that the pool uses or reserves for itself.
    #[serde(default)]
    pub used: Option<u64>,
    /// Reads that failed or returned wrong data since the pool was created. All of them were
    /// answered from other drives.
    pub read_errors: Option<u64>,
    /// Reads among `read_errors` that returned wrong data.
    #[serde(default)]
    pub checksum_errors: Option<u64>,
    /// Time of the last read error; absent if there was none.
    #[serde(default)]
    pub last_error: Option<u64>,
    /// True if the drive has read errors in so many zones that it must be replaced. It is drained
    /// automatically if the other drives have enough free space.
    #[serde(default)]
    pub failing: Option<bool>,
    /// Requests that the kernel has completed; absent for a file.
    #[serde(default)]
    pub io: Option<DriveIo>,
    /// Self-assessment of the drive (SMART); absent if `smartctl` is not installed or reports none.
    #[serde(default)]
    pub smart: Option<SmartReport>,
}

/// Requests of one kind that the kernel has completed on a block device, since the device appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveRequests {
    /// Number of requests.
    pub count: u64,
    /// Bytes of the requests; 0 for flushes.
    pub bytes: u64,
    /// Sum of their latencies, in milliseconds.
    pub millis: u64,
}

/// Requests that the kernel has completed on a block device, from all users of the device, since
/// the device appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DriveIo {
    /// Reads.
    pub read: DriveRequests,
    /// Writes.
    pub write: DriveRequests,
    /// Discards; zeros from kernels before 4.18.
    pub discard: DriveRequests,
    /// Flushes; zeros from kernels before 5.5.
    pub flush: DriveRequests,
    /// Time in which the device had requests in progress, in milliseconds.
    pub busy_millis: u64,
}

/// Self-assessment of a drive by SMART, as `smartctl` reports it. A value that the drive does not
/// report is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SmartReport {
    /// Time of the report.
    pub time: u64,
    /// False if the drive predicts its failure.
    pub passed: Option<bool>,
    /// Share of the rated endurance that is used, in percent. It can exceed 100.
    pub wear_percent: Option<u64>,
    /// Temperature in degrees Celsius.
    pub temperature: Option<i64>,
    /// Errors of the medium that the drive could not correct.
    pub media_errors: Option<u64>,
    /// Hours in which the drive was powered on.
    pub power_on_hours: Option<u64>,
    /// Model.
    pub model: Option<String>,
    /// Serial number.
    pub serial: Option<String>,
}

/// A request to add a drive to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDrive {
    /// Absolute path of a block device or file.
    pub path: String,
    /// Erase existing data.
    #[serde(default)]
    pub wipe: bool,
}

/// A request to return a missing or failed drive to its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReturnDrive {
    /// Absolute path of the drive; its last path if absent.
    #[serde(default)]
    pub path: Option<String>,
}

/// Data that was detected on a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DetectedContent {
    /// Kind of the data: `ext4 filesystem`, or a description of data of unknown origin.
    pub description: String,
    /// Byte offset of the signature; absent where the system reports none.
    pub offset: Option<u64>,
}

/// The pool that a drive belongs to, according to the drive's superblock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DetectedPool {
    /// Name of the pool.
    pub name: String,
    /// Identifier of the pool.
    pub id: String,
    /// Protection, `k+m`.
    pub scheme: String,
    /// Index of the drive in the pool.
    pub index: Option<u16>,
    /// Drives of the pool, by the paths at which they were last opened.
    pub drives: Vec<String>,
    /// True if the pool was closed cleanly.
    pub clean: bool,
}

/// A request to identify drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentifyDrives {
    /// Absolute paths.
    pub drives: Vec<String>,
}

/// Type, use and contents of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IdentifiedDrive {
    /// Path as given in the request.
    pub path: String,
    /// Path that does not change when drives are added or moved.
    pub stable_path: Option<String>,
    /// `block device` or `file`.
    pub kind: Option<String>,
    /// Capacity in bytes.
    pub size: Option<u64>,
    /// Pool that the drive belongs to.
    pub pool: Option<DetectedPool>,
    /// Current users of the drive: mounts, devices, processes. A pool cannot use such a drive.
    pub used_by: Vec<String>,
    /// Existing data, which is lost if a pool uses the drive.
    pub contents: Vec<DetectedContent>,
    /// Reason why the drive could not be inspected.
    pub error: Option<Error>,
}
