//! `gabion export`.

use clap::{ArgGroup, Args, Subcommand};

use api::VolumeName;
use api::types::Protocol;

/// Serve volumes to virtual machines and other hosts
#[derive(Subcommand, Debug)]
pub(crate) enum ExportCommand {
    Create(CreateExportArgs),
    /// List exports, and where clients find them
    List,
    /// Delete an export. Its clients' requests fail from then on
    ///
    /// A file that is open, by a loop device for example, stays, and so does a device that is mounted: unmount the file
    /// systems on it first.
    #[command(visible_alias = "remove")]
    Delete {
        /// The volume
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        /// The export, as 'gabion export list' shows it, if the volume has several
        #[arg(long, value_name = "ID")]
        id: Option<String>,
        /// The protocol of the export, if the volume has several exports
        #[arg(long, value_name = "PROTOCOL", value_parser = protocol, conflicts_with = "id")]
        protocol: Option<Protocol>,
        /// Delete it even if this host uses it. Data that is not written back yet is lost
        #[arg(long)]
        force: bool,
    },
}

/// Parses the name of a protocol.
fn protocol(text: &str) -> Result<Protocol, String> {
    let all = [Protocol::Nbd, Protocol::VhostUser, Protocol::Fuse, Protocol::Ublk];
    let found = all.into_iter().find(|protocol| protocol.to_string() == text);
    let names: Vec<String> = all.iter().map(Protocol::to_string).collect();
    found.ok_or_else(|| format!("the protocols are {}", names.join(", ")))
}

/// Serve a volume
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("protocol").required(true).args(["nbd", "vhost_user", "fuse", "ublk"])),
    after_long_help = "\
Examples:
  gabion export create fast/vm01 --nbd
  nbdinfo 'nbd+unix:///fast/vm01?socket=/run/gabion/nbd.sock'
  qemu-system-x86_64 -drive file='nbd+unix:///fast/vm01?socket=/run/gabion/nbd.sock',format=raw,if=virtio

  # A virtual machine's disk without a kernel or a copy in between. Its memory must be shared; 'reconnect'
  # lets the machine go on when the daemon is restarted.
  gabion export create fast/vm02 --vhost-user
  qemu-system-x86_64 -m 4G -smp 4 \
      -object memory-backend-memfd,id=memory,size=4G,share=on -machine q35,memory-backend=memory \
      -chardev socket,id=disk,path=/run/gabion/vhost/fast/vm02.sock,reconnect=1 \
      -device vhost-user-blk-pci,chardev=disk,num-queues=4

  # A file of this host, and a file system in it
  gabion export create fast/data --fuse
  mkfs.ext4 /run/gabion/fuse/fast/data && mount -o loop,discard /run/gabion/fuse/fast/data /mnt

  # A block device of this host, which outlives the daemon: its users wait for the next one
  gabion export create fast/db --ublk
  mkfs.ext4 /run/gabion/ublk/fast/db && mount -o discard /run/gabion/ublk/fast/db /mnt"
)]
pub(crate) struct CreateExportArgs {
    /// The volume
    #[arg(value_name = "POOL/VOLUME")]
    pub(crate) name: VolumeName,
    /// By NBD, at the daemon's NBD addresses, by the name POOL/VOLUME
    #[arg(long)]
    pub(crate) nbd: bool,
    /// As a virtual machine's disk, on a vhost-user socket of its own. One machine at a time uses it
    #[arg(long)]
    pub(crate) vhost_user: bool,
    /// As a file of this host, in the daemon's directory of files, for loop devices and whatever works on files
    #[arg(long)]
    pub(crate) fuse: bool,
    /// As a block device of this host, /dev/ublkbN, where the kernel has ublk (Linux 6.5 or newer)
    #[arg(long)]
    pub(crate) ublk: bool,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Permit several exports of the volume of which any writes. Each of them needs this flag, and their users must
    /// coordinate their writes: a cluster file system, a live migration
    #[arg(long)]
    pub(crate) shared: bool,
    /// With --vhost-user: queues that the machine may use, 1 to 64; without it 64: one that is not used costs nothing. With
    /// --ublk: queues of the device, without it one for each reactor thread
    #[arg(long, value_name = "N", conflicts_with_all = ["nbd", "fuse"])]
    pub(crate) queues: Option<u16>,
    /// With --vhost-user and --ublk: reactor threads that the queues are dealt out to, numbered from 0, as in '0,2'. Without it all
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with_all = ["nbd", "fuse"])]
    pub(crate) reactors: Vec<u32>,
}
