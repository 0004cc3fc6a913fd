//! Ceph clusters that 'gabion cluster' of the daemon's host has deployed or adopted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A cluster that the daemon's host knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cluster {
    /// Name of the cluster.
    pub name: String,
    /// True if it is configured, so that its status can be read.
    pub configured: bool,
    /// True if the daemon can serve its images as volumes.
    pub volumes: bool,
}

/// Health of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClusterHealth {
    /// All data has all copies, and all daemons run.
    Healthy,
    /// All data is available, with a problem.
    Degraded,
    /// Data is unavailable or damaged.
    Failed,
    /// No monitor answers.
    Unreachable,
}

/// A problem of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterProblem {
    /// Name of Ceph's health check, if there is one.
    pub check: Option<String>,
    /// The problem, with its objects.
    pub message: String,
    /// The consequence for data.
    pub consequence: String,
    /// The action that solves it.
    pub action: String,
}

/// A host of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterHost {
    /// Name of the host.
    pub name: String,
    /// Its roles: `mon`, `mgr`, `storage` and others.
    pub roles: Vec<String>,
    /// Its address in the public network.
    pub address: Option<String>,
    /// True if its monitor is in the quorum; absent for a host without a monitor.
    pub in_quorum: Option<bool>,
    /// Number of its OSDs.
    pub osds: u64,
    /// Number of its OSDs that are up.
    pub osds_up: u64,
}

/// An OSD of a cluster: the daemon of one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterOsd {
    /// Number of the OSD.
    pub id: u64,
    /// Its host.
    pub host: String,
    /// Its drive; absent for an OSD that another tool deployed.
    pub drive: Option<String>,
    /// The drive of its database, if that is another one.
    pub db: Option<String>,
    /// The drive of its write-ahead log, if that is another one.
    pub wal: Option<String>,
    /// `up`, or `down` and perhaps `out`.
    pub state: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Used bytes.
    pub used: u64,
}

/// A pool of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPool {
    /// Name of the pool.
    pub name: String,
    /// Applications that Ceph records for it: `rbd`, `cephfs`, `rgw` and others.
    pub applications: Vec<String>,
    /// Its redundancy: `3 copies` or `2+2`.
    pub protection: String,
    /// Number of its placement groups.
    pub placement_groups: u64,
    /// Number of its objects.
    pub objects: u64,
    /// Stored bytes of clients.
    pub stored: u64,
    /// Used bytes of all drives, with protection.
    pub used: u64,
    /// Bytes that clients can add.
    pub available: u64,
}

/// The status of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    /// Name of the cluster.
    pub name: String,
    /// Identity of the cluster.
    pub fsid: String,
    /// True for a cluster that another tool deployed.
    pub adopted: bool,
    /// Health of the cluster.
    pub health: ClusterHealth,
    /// Its problems.
    pub problems: Vec<ClusterProblem>,
    /// Copies of new pools.
    pub replicas: u64,
    /// Monitors in the quorum.
    pub monitors_in_quorum: Vec<String>,
    /// All monitors.
    pub monitors: Vec<String>,
    /// The active manager.
    pub manager: Option<String>,
    /// Capacity of all drives in bytes, before protection.
    pub capacity: u64,
    /// Free bytes, before protection.
    pub free: u64,
    /// Stored bytes of clients.
    pub stored: u64,
    /// Number of placement groups in each state.
    pub placement_groups: BTreeMap<String, u64>,
    /// Bytes per second that clients read, averaged by Ceph.
    pub read_bytes: u64,
    /// Bytes per second that clients write, averaged by Ceph.
    pub write_bytes: u64,
    /// Bytes per second that the cluster copies to restore redundancy.
    pub recovery_bytes: u64,
    /// Pools of the cluster.
    pub pools: Vec<ClusterPool>,
    /// Hosts of the cluster.
    pub hosts: Vec<ClusterHost>,
    /// OSDs of the cluster.
    pub osds: Vec<ClusterOsd>,
}
