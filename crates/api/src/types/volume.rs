//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// The stable identity within the pool: no other volume or snapshot gets it, even after it is
    /// deleted.
    #[serde(default)]
    pub id: String,
    /// Name of the pool.
    pub pool: String,
    /// Name within the pool; `volume@snapshot` for a snapshot.
    pub name: String,
    /// True for a snapshot, which is read-only.
    pub snapshot: bool,
    /// Snapshot from which the volume was cloned, while that snapshot exists.
    pub origin: Option<String>,
    /// Size in bytes.
    pub size: u64,
    /// Bytes of data written since its last snapshot or since it was cloned. Its other data is
    /// stored by snapshots.
    pub stored: u64,
    /// Sector size in bytes.
    pub sector: u32,
    /// Time of its creation.
    pub created: u64,
    /// True while it is being deleted.
    pub deleting: bool,
    /// For a deleted snapshot: number of volumes and snapshots in which its data is still visible.
    /// The last one takes over the data.
    pub retained_by: usize,
    /// Number of the pool's shards that store its blocks.
    #[serde(default)]
    pub shards: u16,
    /// First of these shards; the others follow.
    #[serde(default)]
    pub first_shard: u16,
    /// True if it is exported.
    pub exported: bool,
    /// QoS limits of the volume.
    #[serde(default)]
    pub qos: QosLimits,
}

/// QoS limits of a volume, for the sum of all its exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QosLimits {
    /// Limit in operations per second; absent for no limit.
    pub iops: Option<u64>,
    /// Limit in bytes per second; absent for no limit.
    pub bandwidth: Option<u64>,
    /// Milliseconds of unused limit that an idle volume accumulates for a burst.
    pub burst_ms: u32,
    /// Share under contention, relative to the weights of other volumes: 1 to 10,000, default 100.
    pub weight: u16,
    /// Reserve the full size (thick provisioning).
    pub thick: bool,
}

impl Default for QosLimits {
    fn default() -> Self {
        Self { iops: None, bandwidth: None, burst_ms: 0, weight: 100, thick: false }
    }
}

/// A request to create a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Name: up to 63 letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Sector size in bytes: 512, which every operating system supports, or 4096; 512 if absent.
    #[serde(default)]
    pub sector: Option<u32>,
    /// Reserve the full size (thick provisioning). A thin volume takes space as it is written.
    #[serde(default)]
    pub thick: bool,
    /// Number of the pool's shards that store its blocks, each served by one core; all if absent.
    /// The pool chooses the shards with the least allocated space.
    #[serde(default)]
    pub shards: Option<u16>,
    /// For a volume of a cluster: the pool of its data; the cluster's default if absent.
    #[serde(default)]
    pub data_pool: Option<String>,
}

impl CreateVolume {
    /// Returns a request for a thin volume on all shards, with the default sector size.
    pub fn new(name: impl Into<String>, size: u64) -> Self {
        Self { name: name.into(), size, sector: None, thick: false, shards: None, data_pool: None }
    }
}

/// A request to resize a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// New size in bytes.
    pub size: u64,
    /// Allow a smaller size, which discards the data beyond it.
    #[serde(default)]
    pub shrink: bool,
}
