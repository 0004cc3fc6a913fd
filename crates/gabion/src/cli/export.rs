//! `gabion export`.

use clap::{ArgGroup, Args, Subcommand};

use super::VolumeName;

/// Serve volumes to virtual machines and other hosts
#[derive(Subcommand, Debug)]
pub(crate) enum ExportCommand {
    Create(CreateExportArgs),
    /// List exports, and where clients find them
    List,
    /// End an export. Its clients' requests fail from then on
    Delete {
        /// The volume
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
    },
}

/// Serve a volume
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("protocol").required(true).args(["nbd"])),
    after_long_help = "\
Examples:
  gabion export create fast/vm01 --nbd
  nbdinfo 'nbd+unix:///fast/vm01?socket=/run/gabion/nbd.sock'
  qemu-system-x86_64 -drive file='nbd+unix:///fast/vm01?socket=/run/gabion/nbd.sock',format=raw,if=virtio"
)]
pub(crate) struct CreateExportArgs {
    /// The volume
    #[arg(value_name = "POOL/VOLUME")]
    pub(crate) name: VolumeName,
    /// By NBD, at the daemon's NBD addresses, by the name POOL/VOLUME
    #[arg(long)]
    pub(crate) nbd: bool,
    /// Refuse writes
    #[arg(long)]
    pub(crate) read_only: bool,
}
