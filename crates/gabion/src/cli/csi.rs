//! Arguments of `gabion csi`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use csi::Endpoint;

/// The way in which volumes reach the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AttachArg {
    /// By ublk, NVMe/TCP, NBD, or a file with a loop device: the first that the kernel has
    Local,
    /// By the kernel's NVMe/TCP initiator
    NvmeTcp,
}

/// Run the CSI driver, which provides volumes to the containers of a cluster
///
/// Serves the Container Storage Interface 1.12 on a Unix socket. The driver uses the API of the
/// daemon on this node. It runs in the foreground and logs to standard error, with the settings
/// 'log_level' and 'log_format' of the daemon. SIGTERM and SIGINT stop it after the calls in
/// progress; volumes in use are not affected.
///
/// With --node, the driver mounts volumes on this node, and must run as root. With --controller, it
/// creates and deletes volumes and snapshots in the pools of this node's daemon. Both can run in
/// one process.
///
/// With --attach nvme-tcp, the nodes need no daemon and no drives: the driver uses the daemon of
/// another host (--server, --token-file) with a token of the role 'operator'.
///
/// docs/kubernetes.md describes the installation in a cluster.
#[derive(Args, Debug, Clone)]
#[command(after_long_help = "\
Examples:
  gabion csi --node --controller --endpoint unix:///run/gabion/csi.sock
  gabion csi --controller --attach nvme-tcp --server https://storage-1 --token-file /etc/gabion/token \\
    --endpoint unix:///csi/csi.sock
  gabion csi --node --controller --endpoint unix:///csi/csi.sock --node-id \"$NODE_NAME\" \\
    --registration /registration --kubelet-endpoint /var/lib/kubelet/plugins/csi.gabion.io/csi.sock")]
#[command(group = clap::ArgGroup::new("services").required(true).multiple(true).args(["node", "controller"]))]
pub(crate) struct CsiArgs {
    /// Serve the Node service
    #[arg(long)]
    pub(crate) node: bool,
    /// Serve the Controller service
    #[arg(long)]
    pub(crate) controller: bool,
    /// Leave the growth of volumes to the Node service, for clusters with several nodes. The
    /// resizer of the cluster calls the driver of any node, but only the driver of the volume's
    /// node reaches the daemon that stores the volume. With this flag, the kubelet of that node
    /// grows the volume
    #[arg(long)]
    pub(crate) expand_on_node: bool,
    /// Attach volumes as local devices of a node that has a daemon and the drives, or as NVMe/TCP
    /// disks of a daemon on another host
    #[arg(long, value_name = "KIND", value_enum, default_value_t = AttachArg::Local)]
    pub(crate) attach: AttachArg,
    /// Unix socket of the driver
    #[arg(long, value_name = "unix:///PATH")]
    pub(crate) endpoint: Endpoint,
    /// Name of this node in the cluster [default: the host name]
    #[arg(long, value_name = "NAME")]
    pub(crate) node_id: Option<String>,
    /// Name of the driver, as in the storage classes
    #[arg(long, value_name = "NAME", default_value = csi::DEFAULT_DRIVER_NAME)]
    pub(crate) driver_name: String,
    /// Most volumes that the cluster may place on this node
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub(crate) max_volumes: u32,
    /// Register with the kubelet, whose sockets of plugins are in this directory
    #[arg(long, value_name = "DIR")]
    pub(crate) registration: Option<PathBuf>,
    /// Path of the driver's socket as the kubelet sees it [default: that of --endpoint]
    #[arg(long, value_name = "PATH", requires = "registration")]
    pub(crate) kubelet_endpoint: Option<PathBuf>,
}
