//! Snapshots and clones.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A snapshot to be taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeSnapshot {
    /// Its own name, which follows the volume's and `@`: letters, digits, `.`, `_` and `-`, at most 63.
    pub name: String,
}

/// A volume to be made of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneSnapshot {
    /// The new volume's name.
    pub name: String,
}

/// A volume that is to be what a snapshot of it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// Even if the volume is exported: whoever uses it sees other data from one moment to the next.
    #[serde(default)]
    pub force: bool,
}

/// What a volume or snapshot holds, counted from the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub name: String,
    /// Bytes of data that it shows; the rest reads as zeros.
    pub shown: u64,
    /// Bytes that only it shows: deleting it frees them.
    pub alone: u64,
    /// Bytes that it shows and others show too.
    pub shared: u64,
}

/// A stretch in which a volume or snapshot differs from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Change {
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How many bytes it has.
    pub length: u64,
    /// True if it holds data; otherwise it reads as zeros.
    pub data: bool,
}

/// Part of where a volume or snapshot differs from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changes {
    /// In order.
    pub changes: Vec<Change>,
    /// Where the next part begins; absent behind the last.
    pub next: Option<u64>,
}
