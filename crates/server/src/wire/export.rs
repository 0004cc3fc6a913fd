//! Exports: volumes as others see them.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How a volume is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
    /// The pool.
    pub pool: String,
    /// The volume.
    pub volume: String,
    /// How it is served.
    pub protocol: Protocol,
    /// True if writes are refused.
    pub read_only: bool,
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
    /// Clients that are connected; of a file, how often it is open. Of a device it is not known.
    pub connections: u64,
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
    /// For vhost-user: how many queues a machine may use, 64 if absent, which is the most. For ublk: how many the device
    /// has, one for each reactor thread if absent.
    #[serde(default)]
    pub queues: Option<u16>,
    /// For vhost-user and ublk: the reactor threads that its queues are dealt out to, from 0. All of them if there are none.
    #[serde(default)]
    pub reactors: Vec<u32>,
}

/// How an export is to be ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteExport {
    /// End it although it is in use by this host: what its users do from then on fails.
    #[serde(default)]
    pub force: bool,
}
