//! Drives: those of pools, and what is found on others.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Whether a pool uses a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// In use.
    Online,
    /// In use, and being emptied: it leaves the pool when that is done.
    Leaving,
    /// In use again after it was lost; what it missed is being written.
    Returning,
    /// It was not there when the pool was opened, or went while it was in service.
    Missing,
    /// It failed a write or a flush, or was taken out of use.
    Failed,
    /// It no longer belongs to the pool.
    Removed,
    /// The pool is not open: nobody has looked.
    Unknown,
}

/// A drive of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolDrive {
    /// The pool.
    pub pool: String,
    /// Its number in the pool.
    pub index: Option<u16>,
    /// Its identity.
    pub id: Option<String>,
    /// The path that it was opened by.
    pub path: String,
    /// Capacity in bytes.
    pub size: Option<u64>,
    /// Whether it is in use.
    pub state: DriveState,
    /// Bytes of it that the pool uses or keeps for itself.
    #[serde(default)]
    pub used: Option<u64>,
    /// Reads that it failed or answered wrongly in the life of the pool. The others gave the data back.
    pub read_errors: Option<u64>,
    /// Those of them that it answered wrongly.
    #[serde(default)]
    pub wrong_reads: Option<u64>,
    /// When the last of them was, in seconds since 1970; absent if there was none.
    #[serde(default)]
    pub last_error: Option<u64>,
    /// True if it errs in so many places that it is to go: it is emptied by itself if the others have room.
    #[serde(default)]
    pub failing: Option<bool>,
}

/// A drive that is to join a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddDrive {
    /// A block device or file, by absolute path.
    pub path: String,
    /// Destroy what is on it.
    #[serde(default)]
    pub wipe: bool,
}

/// A lost drive that is there again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReturnDrive {
    /// Where it is, an absolute path; where it was, if absent.
    #[serde(default)]
    pub path: Option<String>,
}

/// Something that was found on a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// What it is: `ext4 filesystem`, or what data that no known system left looks like.
    pub what: String,
    /// The byte of the drive that shows it; absent where the system found it without saying where.
    pub offset: Option<u64>,
}

/// A pool that a drive belongs to, as that drive tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolOnDrive {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: String,
    /// Its protection, `k+m`.
    pub scheme: String,
    /// The drive's number in it.
    pub index: Option<u16>,
    /// Its drives, by the paths at which they were last opened.
    pub drives: Vec<String>,
    /// True if it was closed in order.
    pub clean: bool,
}

/// Drives to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentifyDrives {
    /// Absolute paths.
    pub drives: Vec<String>,
}

/// What a drive is and holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IdentifiedDrive {
    /// The path as it was given.
    pub path: String,
    /// The name that stays the same when drives are added or moved.
    pub stable_path: Option<String>,
    /// `block device` or `file`.
    pub kind: Option<String>,
    /// Capacity in bytes.
    pub size: Option<u64>,
    /// The pool that it belongs to.
    pub pool: Option<PoolOnDrive>,
    /// Who uses it: such a drive cannot be had.
    pub users: Vec<String>,
    /// What is on it: that is destroyed if a pool takes the drive.
    pub holds: Vec<Finding>,
    /// Why it could not be looked at.
    pub error: Option<crate::error::Error>,
}
