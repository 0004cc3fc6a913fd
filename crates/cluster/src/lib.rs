//! Ceph clusters: deployment in stages from a policy, and status.
//!
//! Owns the policy, proposals and plan of a cluster, the scripts on its hosts, and the connection
//! to it. Always true: nothing of another cluster on a host is changed: every file is below the
//! directory of the cluster, every signalled process uses its `ceph.conf`, and every erased drive
//! carries its identity or was named for erasure.
//!
//! Must not know: the local storage engine, exports, the command line.

mod adopt;
mod boot;
mod conf;
mod daemons;
mod erase;
mod fragments;
mod glob;
mod hosts;
mod inventory;
mod keys;
mod links;
mod model;
mod mount;
mod network;
mod perform;
mod perform_services;
mod places;
mod policy;
mod pools;
mod prepare;
mod progress;
mod proposal;
mod quickstart;
mod remove;
mod run;
mod separate;
mod services;
mod stages;
mod status;
mod status_details;
mod steps;
mod transport;
mod validate;
mod workspace;

/// Pool of the data of the file system that `services` creates.
pub const FILE_SYSTEM_DATA_POOL: &str = services::FILE_SYSTEM_POOLS[1];
/// Pools of the data of volumes that `services` creates; the first one that exists is the default.
pub const VOLUMES_DATA_POOLS: [&str; 2] = [pools::VOLUMES_DATA_POOL, pools::VOLUMES_POOL];

pub use adopt::adopt;
pub use ceph::{Error, ErrorKind, Result};
pub use inventory::{DriveKind, HostDrive, HostInventory};
pub use links::{ClusterLinks, links};
pub use model::{ClusterModel, ModelHost};
pub use mount::{FileSystemMount, MountOptions, remove_stale_mount};
pub use places::{HostPlace, local_processes, storage_places};
pub use pools::{PoolSpec, Redundancy};
pub use progress::{Progress, StepOutcome, StepReport};
pub use proposal::ProposalArgs;
pub use quickstart::QuickstartPlan;
pub use remove::{remove, remove_all};
pub use services::{ServiceAddress, ServiceOptions, ServicesResult, services};
pub use stages::{Configuration, DeployResult, Discovery, configure, deploy, discover, prepare};
pub use status::status;
pub use validate::Violation;
pub use workspace::{CLUSTERS_DIR, ClientAccess, Workspace, list};
