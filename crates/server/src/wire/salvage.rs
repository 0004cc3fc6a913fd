//! The remains of a pool that is salvaged. Not part of the API: `gabion salvage` prints them.

use serde::{Deserialize, Serialize};

use super::{CheckFinding, DriveState};

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByteRange {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// A drive of a pool that is salvaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvagedDrive {
    /// Its number in the pool.
    pub index: u16,
    /// The path at which the pool last found it.
    pub path: String,
    /// Its state in the newest superblock.
    pub state: DriveState,
    /// True if it is among the drives that were given.
    pub present: bool,
}

/// A volume or snapshot of a pool that is salvaged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvagedVolume {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its sector size in bytes.
    pub sector: u32,
    /// True for a snapshot.
    pub snapshot: bool,
    /// When it was created.
    pub created: u64,
    /// True if all of it may be older than the newest write.
    pub stale: bool,
    /// Bytes of data that can be read and are the newest.
    pub readable_bytes: u64,
    /// Bytes of data that can be read and may be older than the newest write, or deleted since.
    pub stale_bytes: u64,
    /// Bytes that cannot be read.
    pub lost_bytes: u64,
    /// The ranges that cannot be read.
    pub lost: Vec<ByteRange>,
    /// The ranges that may be stale, holes included.
    pub stale_ranges: Vec<ByteRange>,
}

/// The remains of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Salvaged {
    /// The pool's name.
    pub pool: String,
    /// Its identity.
    pub id: String,
    /// Its scheme, as k+m.
    pub scheme: String,
    /// True if it was closed in order.
    pub clean: bool,
    /// The number of the opening of the pool that the drives show last.
    pub opening: u64,
    /// The version of the pool's state within that opening.
    pub generation: u64,
    /// Its drives.
    pub drives: Vec<SalvagedDrive>,
    /// The reason why the pool cannot be opened, if there is one, and the parts of its metadata that cannot be read.
    pub problems: Vec<CheckFinding>,
    /// Records of the log that were replayed in memory.
    pub records: u64,
    /// Layers of volumes whose record cannot be read.
    pub unowned_layers: u64,
    /// True if records of the log are lost: every block may be older than the newest write.
    pub stale: bool,
    /// True if stale data is read.
    pub accepts_stale: bool,
    /// True if every block was read to find out what is lost.
    pub verified: bool,
    /// The volumes and snapshots, by name.
    pub volumes: Vec<SalvagedVolume>,
}

impl Salvaged {
    /// True if all data of all volumes can be read and is the newest.
    pub fn is_whole(&self) -> bool {
        let is_whole =
            |volume: &SalvagedVolume| !volume.stale && volume.stale_bytes == 0 && volume.lost_bytes == 0;
        self.problems.is_empty() && self.volumes.iter().all(is_whole)
    }
}

/// An image that was written of a volume or snapshot of a pool that is salvaged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SalvagedImage {
    /// The volume or snapshot.
    pub volume: String,
    /// The image.
    pub file: String,
    /// Bytes of the volume, and of the image.
    pub size: u64,
    /// Bytes of data that were written. Zeros are left out.
    pub written_bytes: u64,
    /// Bytes that could not be read: holes in the image.
    pub lost_bytes: u64,
    /// The ranges that could not be read, with the reason for the beginning of each.
    pub lost: Vec<UnreadableRange>,
    /// Bytes in ranges that may be older than the newest write.
    pub stale_bytes: u64,
    /// The ranges that may be older than the newest write.
    pub stale_ranges: Vec<ByteRange>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// A range of a volume that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnreadableRange {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The reason for its beginning, with the place.
    pub reason: String,
}
