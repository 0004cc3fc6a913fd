//! Volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Its stable identity within the pool: no other volume or snapshot gets it, even after it is deleted.
    #[serde(default)]
    pub id: String,
    /// Its pool.
    pub pool: String,
    /// Its name within the pool; of a snapshot, `volume@snapshot`.
    pub name: String,
    /// True if it is a snapshot: never written.
    pub snapshot: bool,
    /// The snapshot that it was cloned from, while there is one.
    pub origin: Option<String>,
    /// Size in bytes that it offers.
    pub size: u64,
    /// Bytes of data that it stores itself: written since the snapshot before it was taken, or since it was cloned. What it
    /// shows besides is stored by snapshots.
    pub stored: u64,
    /// Sector size that it offers, in bytes.
    pub sector: u32,
    /// When it was created.
    pub created: u64,
    /// True while it is being deleted.
    pub deleting: bool,
    /// Of a deleted snapshot of which nothing is left but what others show, clones among them: how many these are. When there is
    /// one, that takes over what is left.
    pub kept_by: usize,
    /// How many of the pool's shards its blocks are dealt out to.
    #[serde(default)]
    pub shards: u16,
    /// The first of these; the others follow.
    #[serde(default)]
    pub first_shard: u16,
    /// True if it is exported.
    pub exported: bool,
    /// What it may take, and what it gets beside others.
    #[serde(default)]
    pub service: Service,
}

/// What a volume may take, and what it gets beside others. All cores and all of its exports count together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Service {
    /// Operations a second at most; no limit if absent.
    pub iops: Option<u64>,
    /// Bytes a second at most; no limit if absent.
    pub bandwidth: Option<u64>,
    /// Milliseconds for which a volume that was quiet may go beyond its limits: what it saves up.
    pub burst_ms: u32,
    /// Its share beside other volumes that want to at the same time, 1 to 10,000; 100 is the usual one.
    pub weight: u16,
    /// Room is kept for all of it, which others cannot take.
    pub thick: bool,
}

impl Default for Service {
    fn default() -> Self {
        Self { iops: None, bandwidth: None, burst_ms: 0, weight: 100, thick: false }
    }
}

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name: letters, digits, `.`, `_` and `-`, at most 63.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Sector size that it offers: 512 or 4096. 512 if absent, which every system boots from.
    #[serde(default)]
    pub sector: Option<u32>,
    /// Keep room for all of it, which others cannot take then. Without this it takes room as it is written.
    #[serde(default)]
    pub thick: bool,
    /// Deal its blocks out to so many of the pool's shards, each of which one core works on; to all if absent. The pool chooses those to which
    /// the least was dealt out.
    #[serde(default)]
    pub shards: Option<u16>,
}

impl CreateVolume {
    /// A thin volume on all shards, with sectors as they are by default.
    pub fn new(name: impl Into<String>, size: u64) -> Self {
        Self { name: name.into(), size, sector: None, thick: false, shards: None }
    }
}

/// A new size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// Size in bytes.
    pub size: u64,
    /// Allows a smaller size, which cuts off what lies behind it.
    #[serde(default)]
    pub shrink: bool,
}
