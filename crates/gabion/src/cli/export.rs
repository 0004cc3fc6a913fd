//! Arguments of `gabion export`.

use clap::{ArgGroup, Args, Subcommand};

use api::VolumeName;
use api::types::Protocol;

/// Export volumes over NBD, vhost-user, FUSE or ublk
#[derive(Subcommand, Debug)]
pub(crate) enum ExportCommand {
    Create(CreateExportArgs),
    /// List exports and their URIs
    List,
    /// Delete an export; requests of its clients then fail
    ///
    /// An export that this host uses is refused: an open file of a FUSE export, for example below a
    /// loop device, or a mounted ublk device. Unmount its file systems first.
    #[command(visible_alias = "remove")]
    Delete {
        /// Name of the volume
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        /// Id of the export, as 'gabion export list' shows it; required if several exports match
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// Protocol of the export, if the volume has several: nbd, vhost-user, fuse or ublk
        #[arg(long, value_name = "PROTOCOL", value_parser = protocol, conflicts_with = "id")]
        protocol: Option<Protocol>,
        /// Delete the export even if this host uses it. Data that is not written back is lost
        #[arg(long)]
        force: bool,
    },
}

/// Parses the name of a protocol.
fn protocol(text: &str) -> Result<Protocol, String> {
    let all = [Protocol::Nbd, Protocol::VhostUser, Protocol::Fuse, Protocol::Ublk];
    let protocol = all.into_iter().find(|protocol| protocol.to_string() == text);
    let names: Vec<String> = all.iter().map(Protocol::to_string).collect();
    protocol.ok_or_else(|| format!("unknown protocol: give one of {}", names.join(", ")))
}

/// Export a volume or snapshot
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("protocol").required(true).args(["nbd", "vhost_user", "fuse", "ublk"])),
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
  mkfs.ext4 /run/gabion/ublk/fast/db && mount -o discard /run/gabion/ublk/fast/db /mnt"
)]
pub(crate) struct CreateExportArgs {
    /// Name of the volume
    #[arg(value_name = "POOL/VOLUME")]
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
    /// Reject writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Allow more than one export of the volume while any of them is writable. Every export of the
    /// volume needs this flag, and its users must coordinate their writes (cluster file system,
    /// live migration)
    #[arg(long)]
    pub(crate) shared: bool,
    /// Number of queues, 1 to 64 [default: 64 for --vhost-user, one per reactor thread for --ublk]
    #[arg(long, value_name = "N", conflicts_with_all = ["nbd", "fuse"])]
    pub(crate) queues: Option<u16>,
    /// Reactor threads that serve the queues of --vhost-user or --ublk, numbered from 0, as in 0,2
    /// [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["nbd", "fuse"])]
    pub(crate) reactors: Vec<u32>,
}
