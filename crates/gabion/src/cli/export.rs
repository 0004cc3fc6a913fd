//! Arguments of `gabion export`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};

use api::VolumeName;
use api::types::Protocol;

/// Export volumes over NBD, vhost-user, FUSE, ublk, NVMe/TCP or iSCSI
#[derive(Subcommand, Debug)]
pub(crate) enum ExportCommand {
    Create(Box<CreateExportArgs>),
    /// List exports and their URIs
    List,
    /// Delete an export; requests of its clients then fail
    ///
    /// An export that this host uses is refused: an open file of a FUSE export, for example below a
    /// loop device, or a mounted ublk device. Unmount its file systems first.
    #[command(visible_alias = "remove")]
    Delete {
        /// Exported volume or snapshot
        #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
        name: VolumeName,
        /// Id of the export, as 'gabion export list' shows it; required if several exports match
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Protocol of the export, if the volume has several: nbd, vhost-user, fuse, ublk, nvme-tcp
        /// or iscsi
        #[arg(long, value_name = "PROTOCOL", value_parser = protocol, conflicts_with = "id")]
        protocol: Option<Protocol>,
        /// Name of the program that manages the export, if it has one
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
        /// Delete the export even if this host uses it or another program manages it. Data that is
        /// not written back is lost
        #[arg(long)]
        force: bool,
    },
}

/// Parses the name of a protocol.
fn protocol(text: &str) -> Result<Protocol, String> {
    let all = [
        Protocol::Nbd,
        Protocol::VhostUser,
        Protocol::Fuse,
        Protocol::Ublk,
        Protocol::NvmeTcp,
        Protocol::Iscsi,
    ];
    let protocol = all.into_iter().find(|protocol| protocol.to_string() == text);
    let names: Vec<String> = all.iter().map(Protocol::to_string).collect();
    protocol.ok_or_else(|| format!("unknown protocol: give one of {}", names.join(", ")))
}

/// The port of NVMe/TCP.
const NVME_PORT: u16 = 4420;
/// The port of iSCSI.
const ISCSI_PORT: u16 = 3260;

/// A TCP address, with or without a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Complete(SocketAddr),
    WithoutPort(IpAddr),
}

impl ListenAddress {
    /// The address with the port of its protocol, if it has none.
    pub(crate) fn complete(self, protocol: Protocol) -> SocketAddr {
        match self {
            Self::Complete(address) => address,
            Self::WithoutPort(ip) => {
                let port = if protocol == Protocol::Iscsi { ISCSI_PORT } else { NVME_PORT };
                SocketAddr::new(ip, port)
            }
        }
    }
}

/// Parses a TCP address, with or without a port.
fn address(text: &str) -> Result<ListenAddress, String> {
    if let Ok(ip) = text.parse() {
        return Ok(ListenAddress::WithoutPort(ip));
    }
    match text.parse::<SocketAddr>() {
        Err(_) => Err(format!("'{text}' is not an address, as in 10.0.0.1:4420")),
        Ok(address) if address.port() == 0 => {
            Err(format!("'{text}' has no port: the usual ports are {NVME_PORT} and {ISCSI_PORT}"))
        }
        Ok(address) => Ok(ListenAddress::Complete(address)),
    }
}

/// Export a volume or snapshot
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("network").args(["nvme_tcp", "iscsi"])),
    group(ArgGroup::new("protocol").required(true).args(["nbd", "vhost_user", "fuse", "ublk", "nvme_tcp", "iscsi"])),
    after_long_help = "\
Examples:
  gabion export create fast/vm01 --nbd
  nbdinfo 'nbd+unix:///fast/vm01?socket=/run/gabion/nbd.sock'
  qemu-system-x86_64 -drive file='nbd+unix:///fast/vm01?socket=/run/gabion/nbd.sock',format=raw,if=virtio

  # A disk of a local virtual machine. The guest memory must be shared; with 'reconnect', the machine
  # keeps running across daemon restarts.
  gabion export create fast/vm02 --vhost-user
  qemu-system-x86_64 -m 4G -smp 4 \
      -object memory-backend-memfd,id=memory,size=4G,share=on -machine q35,memory-backend=memory \
      -chardev socket,id=disk,path=/run/gabion/vhost/fast/vm02.sock,reconnect=1 \
      -device vhost-user-blk-pci,chardev=disk,num-queues=4

  # A file of this host with a file system
  gabion export create fast/data --fuse
  mkfs.ext4 /run/gabion/fuse/fast/data && mount -o loop,discard /run/gabion/fuse/fast/data /mnt

  # A block device of this host; its I/O waits while the daemon restarts
  gabion export create fast/db --ublk
  mkfs.ext4 /run/gabion/ublk/fast/db && mount -o discard /run/gabion/ublk/fast/db /mnt

  # A disk for another host, over the network. The printed command connects that host; the second
  # one, on that host, lists the disks that it may use
  gabion export create fast/vm03 --nvme-tcp --listen 10.0.0.1:4420 \\
      --host nqn.2014-08.org.nvmexpress:uuid:0d1c9fe6-4f3c-4a5b-9d7e-0f3c1b2a4d5e
  nvme discover -t tcp -a 10.0.0.1

  # The same for a host that authenticates itself, with 'nvme connect --dhchap-secret ...'
  nvme gen-dhchap-key --hmac=1 > /etc/gabion/db1.secret
  gabion export create fast/db --nvme-tcp --listen 10.0.0.1:4420 --secret /etc/gabion/db1.secret

  # The same for a host that uses TLS, with 'nvme connect --tls'
  nvme gen-tls-key --hmac=1 > /etc/gabion/db2.key
  gabion export create fast/db2 --nvme-tcp --listen 10.0.0.1:4420 --tls-key /etc/gabion/db2.key

  # The same over iSCSI, for a host that authenticates itself
  gabion export create fast/vm04 --iscsi --listen 10.0.0.1 --chap-user esx1 --chap-secret-file /etc/gabion/esx1.secret"
)]
pub(crate) struct CreateExportArgs {
    /// Volume or snapshot
    #[arg(value_name = "POOL/VOLUME[@SNAPSHOT]")]
    pub(crate) name: VolumeName,
    /// Export over NBD: on the daemon's NBD socket and addresses, with the name POOL/VOLUME
    #[arg(long)]
    pub(crate) nbd: bool,
    /// Export as a disk of a virtual machine on its own vhost-user socket, for one machine at a
    /// time
    #[arg(long)]
    pub(crate) vhost_user: bool,
    /// Export as a file over FUSE, for loop devices and programs that work on files
    #[arg(long)]
    pub(crate) fuse: bool,
    /// Export as a block device /dev/ublkbN. Needs Linux 6.5 or newer with ublk
    #[arg(long)]
    pub(crate) ublk: bool,
    /// Export as a namespace of an NVMe subsystem over TCP, for hosts on the network
    #[arg(long)]
    pub(crate) nvme_tcp: bool,
    /// Export as a logical unit of an iSCSI target, for hosts on the network
    #[arg(long)]
    pub(crate) iscsi: bool,
    /// Reject writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Allow more than one export of the volume while any of them is writable. Every export of the
    /// volume needs this flag, and its users must coordinate their writes (cluster file system,
    /// live migration)
    #[arg(long)]
    pub(crate) shared: bool,
    /// Name of the program that manages the export, which 'gabion export list' shows: others need
    /// --force to delete it
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Number of queues, 1 to 64 [default: 64 for --vhost-user, one per reactor thread for --ublk]
    #[arg(long, value_name = "N", conflicts_with_all = ["nbd", "fuse", "network"])]
    pub(crate) queues: Option<u16>,
    /// Reactor threads that serve the queues of --vhost-user or --ublk, numbered from 0, as in 0,2
    /// [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["nbd", "fuse", "network"])]
    pub(crate) reactors: Vec<u32>,
    /// TCP addresses of --nvme-tcp or --iscsi, as in 10.0.0.1:4420; the port may be omitted
    /// [default: nvme.listen or iscsi.listen of the daemon's configuration]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', value_parser = address, requires = "network")]
    pub(crate) listen: Vec<ListenAddress>,
    /// Name (NQN) of the subsystem of --nvme-tcp; exports with the same name are namespaces of one
    /// subsystem [default: derived from the identity of the volume]
    #[arg(long, value_name = "NQN", requires = "nvme_tcp")]
    pub(crate) subsystem: Option<String>,
    /// Id of the namespace of --nvme-tcp within its subsystem [default: 1]
    #[arg(long, value_name = "N", requires = "nvme_tcp")]
    pub(crate) namespace: Option<u32>,
    /// Name (IQN) of the target of --iscsi; exports with the same name are logical units of one
    /// target [default: derived from the identity of the volume]
    #[arg(long, value_name = "IQN", requires = "iscsi")]
    pub(crate) target: Option<String>,
    /// Number of the logical unit of --iscsi within its target [default: 0]
    #[arg(long, value_name = "N", requires = "iscsi")]
    pub(crate) lun: Option<u32>,
    /// Names of the hosts that may use --nvme-tcp (NQNs; on Linux in /etc/nvme/hostnqn) or --iscsi
    /// (IQNs; on Linux in /etc/iscsi/initiatorname.iscsi) [default: all hosts]
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "network")]
    pub(crate) host: Vec<String>,
    /// File with the secret by which the hosts of --nvme-tcp authenticate themselves
    /// (DH-HMAC-CHAP), as 'nvme gen-dhchap-key' prints it
    #[arg(long, value_name = "FILE", requires = "nvme_tcp")]
    pub(crate) secret: Option<PathBuf>,
    /// File with the secret by which the subsystem authenticates itself to hosts that ask for it,
    /// different from that of --secret
    #[arg(long, value_name = "FILE", requires = "secret")]
    pub(crate) controller_secret: Option<PathBuf>,
    /// File with the pre-shared key of the TLS 1.3 connections that the hosts of --nvme-tcp must
    /// use, as 'nvme gen-tls-key' prints it [default: connections without TLS]
    #[arg(long, value_name = "FILE", requires = "nvme_tcp")]
    pub(crate) tls_key: Option<PathBuf>,
    /// User name by which initiators of --iscsi authenticate themselves (CHAP)
    #[arg(long, value_name = "NAME", requires_all = ["iscsi", "chap_secret_file"])]
    pub(crate) chap_user: Option<String>,
    /// File with the secret of --chap-user, 12 to 255 bytes
    #[arg(long, value_name = "FILE", requires = "chap_user")]
    pub(crate) chap_secret_file: Option<PathBuf>,
    /// User name by which the target authenticates itself to initiators (mutual CHAP)
    #[arg(long, value_name = "NAME", requires_all = ["chap_user", "chap_target_secret_file"])]
    pub(crate) chap_target_user: Option<String>,
    /// File with the secret of --chap-target-user, different from that of --chap-user
    #[arg(long, value_name = "FILE", requires = "chap_target_user")]
    pub(crate) chap_target_secret_file: Option<PathBuf>,
}
