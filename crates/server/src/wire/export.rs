//! Exports: volumes as others see them.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a volume is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Network block device, at the daemon's NBD addresses, by the name `pool/volume`.
    Nbd,
    /// As a virtio-blk disk of a virtual machine, over a vhost-user socket of its own. One machine at a time uses it.
    VhostUser,
    /// As a file of the daemon's host, by FUSE, for loop devices and whatever works on files.
    Fuse,
    /// As a block device of the daemon's host, by ublk.
    Ublk,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nbd => "nbd",
            Self::VhostUser => "vhost-user",
            Self::Fuse => "fuse",
            Self::Ublk => "ublk",
        })
    }
}

/// Whether an export can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExportState {
    /// It is served.
    Active,
    /// Its pool is not open; it is served as soon as that is.
    Waiting,
}

/// An export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// Identifies the export among those of its volume: the protocol, and a number from the second export by it on.
    pub id: String,
    /// The name by which clients ask for it.
    pub name: String,
    /// The pool.
    pub pool: String,
    /// The volume.
    pub volume: String,
    /// How it is served.
    pub protocol: Protocol,
    /// True if writes are refused.
    pub read_only: bool,
    /// True if other exports of the volume may write as well.
    pub shared: bool,
    /// Whether it can be used.
    pub state: ExportState,
    /// Why it cannot be used.
    pub reason: Option<String>,
    /// Where clients find it: as URIs of NBD; for vhost-user `unix:` and the path of its socket; for FUSE the path of its file;
    /// for ublk that of a link to its device, and the device's own.
    pub uris: Vec<String>,
    /// By vhost-user: how many queues a machine may use. By ublk: how many the device has.
    pub queues: Option<u16>,
    /// By vhost-user and ublk: the reactor threads that its queues are dealt out to, from 0. All of them if there are none.
    pub reactors: Vec<u32>,
    /// Connected clients; for a file, open file handles; for a device, always 0.
    pub connections: u64,
    /// Known users on the daemon's host: mount points, and devices stacked on the export.
    pub users: Vec<String>,
}

/// An export to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateExport {
    /// The pool.
    pub pool: String,
    /// The volume.
    pub volume: String,
    /// How it is to be served.
    pub protocol: Protocol,
    /// Refuse writes.
    #[serde(default)]
    pub read_only: bool,
    /// Permit other exports of the volume that write, or one that writes beside others: each of them must be shared. For users
    /// that coordinate their writes, such as a cluster file system.
    #[serde(default)]
    pub shared: bool,
    /// For vhost-user: how many queues a machine may use, 64 if absent, which is the most. For ublk: how many the device
    /// has, one for each reactor thread if absent.
    #[serde(default)]
    pub queues: Option<u16>,
    /// For vhost-user and ublk: the reactor threads that its queues are dealt out to, from 0. All of them if there are none.
    #[serde(default)]
    pub reactors: Vec<u32>,
}

/// The export of a volume to be deleted, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteExport {
    /// The export's identifier. Needed if the volume has several exports, unless `protocol` selects one.
    #[serde(default)]
    pub id: Option<String>,
    /// The export's protocol.
    #[serde(default)]
    pub protocol: Option<Protocol>,
    /// Delete the export even if this host uses it: later requests of its users fail.
    #[serde(default)]
    pub force: bool,
}
