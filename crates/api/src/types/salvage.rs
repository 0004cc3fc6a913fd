//! The readable data of a damaged pool. `gabion salvage` prints it; no endpoint returns it.

use serde::{Deserialize, Serialize};

use super::{CheckFinding, DriveState};

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// A drive of a damaged pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvagedDrive {
    /// Index of the drive in the pool.
    pub index: u16,
    /// Last known path of the drive.
    pub path: String,
    /// State in the newest superblock.
    pub state: DriveState,
    /// True if it is one of the given drives.
    pub present: bool,
}

/// A volume or snapshot of a damaged pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvagedVolume {
    /// Name.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Sector size in bytes.
    pub sector: u32,
    /// True for a snapshot.
    pub snapshot: bool,
    /// Time of its creation.
    pub created: u64,
    /// True if all of its data may be older than the newest write.
    pub stale: bool,
    /// Bytes of data that are readable and current.
    pub readable_bytes: u64,
    /// Bytes of data that are readable, and may be older than the newest write or since deleted.
    pub stale_bytes: u64,
    /// Bytes that cannot be read.
    pub lost_bytes: u64,
    /// Ranges that cannot be read.
    pub lost: Vec<ByteRange>,
    /// Ranges that may be stale, with holes.
    pub stale_ranges: Vec<ByteRange>,
}

/// Contents of a damaged pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SalvageReport {
    /// Name of the pool.
    pub pool: String,
    /// Identifier of the pool.
    pub id: String,
    /// Protection, `k+m`.
    pub scheme: String,
    /// True if it was closed cleanly.
    pub clean: bool,
    /// Number of the last open of the pool that is recorded on the drives.
    pub opening: u64,
    /// Version of the pool's state within that open.
    pub generation: u64,
    /// Drives of the pool.
    pub drives: Vec<SalvagedDrive>,
    /// The reason why the pool cannot be opened, if any, and the unreadable parts of its metadata.
    pub problems: Vec<CheckFinding>,
    /// Log records that were replayed in memory.
    pub records: u64,
    /// Layers of volumes with an unreadable record.
    pub unowned_layers: u64,
    /// True if log records are lost: every block may be older than its newest write.
    pub stale: bool,
    /// True if stale data is accepted.
    pub accepts_stale: bool,
    /// True if every block was read to find lost ranges.
    pub verified: bool,
    /// Volumes and snapshots, by name.
    pub volumes: Vec<SalvagedVolume>,
}

impl SalvageReport {
    /// Returns true if all data of all volumes is readable and current.
    pub fn is_whole(&self) -> bool {
        let is_whole =
            |volume: &SalvagedVolume| !volume.stale && volume.stale_bytes == 0 && volume.lost_bytes == 0;
        self.problems.is_empty() && self.volumes.iter().all(is_whole)
    }
}

/// An image that was written from a volume or snapshot of a damaged pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SalvagedImage {
    /// Name of the volume or snapshot.
    pub volume: String,
    /// Path of the image.
    pub file: String,
    /// Size of the volume and of the image in bytes.
    pub size: u64,
    /// Bytes of data written; blocks of zeros are skipped.
    pub written_bytes: u64,
    /// Bytes that could not be read; they are holes in the image.
    pub lost_bytes: u64,
    /// Ranges that could not be read, with the reason for the first block of each.
    pub lost: Vec<UnreadableRange>,
    /// Bytes in ranges that may be older than the newest write.
    pub stale_bytes: u64,
    /// Ranges that may be older than the newest write.
    pub stale_ranges: Vec<ByteRange>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// A range of a volume that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// The reason for its first block, with the location.
    pub reason: String,
}
