//! Snapshots and clones.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// A request to create a snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshot {
    /// Name of the snapshot, without the volume's name and `@`: up to 63 letters, digits, `.`, `_`
    /// and `-`.
    pub name: String,
}

/// A request to create snapshots of several volumes at one point in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateSnapshots {
    /// Names of the snapshots, `VOLUME@SNAPSHOT`, each of another volume of the pool: up to 32.
    pub snapshots: Vec<String>,
}

/// A request to create a volume from a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CloneSnapshot {
    /// Name of the new volume.
    pub name: String,
}

/// A request to roll a volume back to one of its snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackVolume {
    /// Roll back although the volume is exported: its data changes under its clients.
    #[serde(default)]
    pub force: bool,
}

/// Space that a volume or snapshot uses, counted from its map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeUsage {
    /// Name of the pool.
    pub pool: String,
    /// Name of the volume or snapshot.
    pub name: String,
    /// Bytes of data that are visible in it; the rest reads as zeros.
    pub referenced: u64,
    /// Bytes of data that are visible only in it; deleting it frees them.
    pub exclusive: u64,
    /// Bytes of data that are also visible in other volumes or snapshots.
    pub shared: u64,
}

/// A range in which a volume or snapshot differs from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiffRange {
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// True if the range holds data; false if it reads as zeros.
    pub data: bool,
}

/// A part of the difference between two volumes or snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeDiff {
    /// Differing ranges, in order.
    pub ranges: Vec<DiffRange>,
    /// Offset of the next part; absent in the last part.
    pub next: Option<u64>,
}

/// Parameters of a comparison of a volume or snapshot with another one, or with an empty volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DiffQuery {
    /// Name of the volume or snapshot to compare with. If absent, the ranges that hold data are
    /// returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// First byte to compare: `next` of the previous part.
    #[serde(default)]
    pub offset: u64,
}
