//! Exports: volumes served to clients.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Protocol of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Network block device, at the daemon's NBD addresses, with export name `pool/volume`.
    Nbd,
    /// A virtio-blk disk of a local virtual machine, over its own vhost-user socket. One machine at
    /// a time can use it.
    VhostUser,
    /// A file on the daemon's host, over FUSE, for loop devices and programs that need a file.
    Fuse,
    /// A block device on the daemon's host, by ublk.
    Ublk,
    /// A namespace of an NVMe subsystem over TCP, for hosts on the network.
    NvmeTcp,
    /// A logical unit of an iSCSI target, for hosts on the network.
    Iscsi,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nbd => "nbd",
            Self::VhostUser => "vhost-user",
            Self::Fuse => "fuse",
            Self::Ublk => "ublk",
            Self::NvmeTcp => "nvme-tcp",
            Self::Iscsi => "iscsi",
        })
    }
}

/// State of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExportState {
    /// Clients can use it.
    Active,
    /// The pool of the export is not open. The export becomes active when the pool is opened.
    Waiting,
}

/// An export of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Export {
    /// Identifier of the export among those of its volume: the protocol, followed by a number from
    /// the second export with that protocol on.
    pub id: String,
    /// Name by which clients request it.
    pub name: String,
    /// Name of the pool.
    pub pool: String,
    /// Name of the volume.
    pub volume: String,
    /// Protocol of the export.
    pub protocol: Protocol,
    /// True if writes are refused.
    pub read_only: bool,
    /// True if other exports of the volume may write as well.
    pub shared: bool,
    /// Name of the program that manages the export.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// State of the export.
    pub state: ExportState,
    /// Reason why it is not active.
    pub reason: Option<String>,
    /// Addresses for clients: NBD URIs; `unix:` and the socket's path for vhost-user; the file's
    /// path for FUSE; the paths of the link and of the device for ublk;
    /// `nvme+tcp://ADDRESS:PORT/NQN` for NVMe/TCP; `iscsi://ADDRESS:PORT/IQN/LUN` for iSCSI.
    pub uris: Vec<String>,
    /// Number of queues: the most that a virtual machine can use (vhost-user), or those of the
    /// device (ublk).
    pub queues: Option<u16>,
    /// Reactor threads that serve the queues (vhost-user, ublk), numbered from 0. Empty for all.
    pub reactors: Vec<u32>,
    /// Options of a network disk.
    pub network: NetworkOptions,
    /// Connected clients; for FUSE, the number of open file handles; for NVMe/TCP, the number of
    /// controllers. Always 0 for ublk.
    pub connections: u64,
    /// Known users on the daemon's host: mount points, and devices stacked on the export.
    pub used_by: Vec<String>,
}

/// Options of an export as a network disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkOptions {
    /// TCP addresses with ports. If empty, those of the daemon's configuration.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub listen: Vec<SocketAddr>,
    /// Name by which hosts find the disk: the NQN of the subsystem, or the IQN of the target.
    /// Derived from the identity of the volume if absent.
    #[serde(default)]
    pub target: Option<String>,
    /// Number of the disk among those with the same target: the id of the namespace, 1 if absent;
    /// the logical unit number of iSCSI, 0 if absent.
    #[serde(default)]
    pub unit: Option<u32>,
    /// Names of the hosts that may use the disk: their NQNs or IQNs. All hosts if empty.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Credentials that iSCSI initiators need. No authentication if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapOptions>,
    /// Secrets by which NVMe hosts authenticate themselves. No authentication if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dhchap: Option<DhChapOptions>,
    /// Key of the TLS connections that NVMe hosts must use. Connections without TLS if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsOptions>,
}

/// TLS 1.3 with a pre-shared key, for NVMe/TCP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsOptions {
    /// Configured key in the interchange format, `NVMeTLSkey-1:HH:BASE64:`. Never returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Secrets of NVMe hosts and of their subsystem (DH-HMAC-CHAP), in the form `DHHC-1:NN:BASE64:`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DhChapOptions {
    /// Secret by which hosts authenticate themselves. Never returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Secret by which the subsystem authenticates itself, if a host asks for it. Never returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_secret: Option<String>,
}

/// Credentials of an iSCSI initiator (CHAP).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChapOptions {
    /// User name of the initiator.
    pub user: String,
    /// Secret of the initiator, 12 to 255 bytes. Never returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// User name by which the target authenticates itself, if the initiator asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_user: Option<String>,
    /// Secret of the target, 12 to 255 bytes, different from the initiator's. Never returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_secret: Option<String>,
}

/// A request to export a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateExport {
    /// Name of the pool.
    pub pool: String,
    /// Name of the volume.
    pub volume: String,
    /// Protocol of the export.
    pub protocol: Protocol,
    /// Refuse writes.
    #[serde(default)]
    pub read_only: bool,
    /// Permit several exports of the volume of which at least one writes. All of them must be
    /// shared, and their clients must coordinate their writes, as a cluster file system does.
    #[serde(default)]
    pub shared: bool,
    /// Number of queues. vhost-user: the most that a virtual machine can use, 64 (the maximum) if
    /// absent. ublk: queues of the device, one for each reactor thread if absent.
    #[serde(default)]
    pub queues: Option<u16>,
    /// Reactor threads that serve the queues (vhost-user, ublk), numbered from 0. Empty for all.
    #[serde(default)]
    pub reactors: Vec<u32>,
    /// Options of a network disk (NVMe/TCP, iSCSI).
    #[serde(default)]
    pub network: NetworkOptions,
    /// Name of the program that manages the export, 1 to 64 printable ASCII characters. Others need
    /// `force` to delete it.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]([ -~]*[!-~])?$")]
    pub owner: Option<String>,
}

impl CreateExport {
    /// Returns a request for a writable export without options, which belongs to no program.
    pub fn new(pool: impl Into<String>, volume: impl Into<String>, protocol: Protocol) -> Self {
        Self {
            pool: pool.into(),
            volume: volume.into(),
            protocol,
            read_only: false,
            shared: false,
            queues: None,
            reactors: Vec::new(),
            network: NetworkOptions::default(),
            owner: None,
        }
    }
}

/// The export of a volume to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeleteExportQuery {
    /// Identifier of the export. If the volume has several exports, this or `protocol` is required.
    #[serde(default)]
    pub id: Option<String>,
    /// Protocol of the export.
    #[serde(default)]
    #[param(inline)]
    pub protocol: Option<Protocol>,
    /// Name of the program that manages the export, if it has one.
    #[serde(default)]
    pub owner: Option<String>,
    /// Delete the export although this host uses it, or another program manages it: I/O of its
    /// users fails from then on.
    #[serde(default)]
    pub force: bool,
}
