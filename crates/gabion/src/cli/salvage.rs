//! Arguments of `gabion salvage`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

/// Read the remaining data of a pool that cannot be opened, without writing
///
/// Works with too few drives, with damaged maps, tables and volume records, and with gaps in the
/// log. Lists the remaining volumes and snapshots and how much of each is readable. The pool must
/// be closed. Needs no daemon.
///
/// Unreadable ranges are read errors for NBD clients and holes in images; every such range is
/// listed. All returned data was verified by checksum. If a part of the log is lost, data may be
/// older than the newest write; such data is returned only with --accept-stale.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("action").args(["volume", "all", "nbd"])),
    after_long_help = "\
Examples:
  gabion salvage --drives /dev/nvme{0..4}n1                                   # list
  gabion salvage --drives /dev/nvme{0..4}n1 --verify                          # read all data
  gabion salvage --drives /dev/nvme{0..4}n1 --volume vm01 --output vm01.img   # a sparse raw image
  gabion salvage --drives /dev/nvme{0..4}n1 --all --output /mnt/rescue        # an image of each
  gabion salvage --drives /dev/nvme{0..4}n1 --nbd /run/rescue.sock            # read-only NBD exports
  qemu-img convert -f raw --salvage -O qcow2 'nbd+unix:///fast/vm01?socket=/run/rescue.sock' vm01.qcow2

Exit status:
  0  all data is readable, or was read
  1  failure
  3  data is lost or may be stale; the list names it"
)]
pub(crate) struct SalvageArgs {
    /// Remaining drives of the pool, in any order
    #[arg(long, required = true, num_args = 1.., value_name = "DRIVE")]
    pub(crate) drives: Vec<PathBuf>,
    /// Write a sparse raw image of this volume or snapshot; unreadable ranges become holes
    #[arg(long, value_name = "VOLUME[@SNAPSHOT]", requires = "output")]
    pub(crate) volume: Option<String>,
    /// Write a sparse raw image of every volume and snapshot, NAME.img
    #[arg(long, requires = "output")]
    pub(crate) all: bool,
    /// Image to write; with --all, the directory of the images, which is created if it does not
    /// exist
    #[arg(long, value_name = "PATH", conflicts_with = "nbd")]
    pub(crate) output: Option<PathBuf>,
    /// Replace existing images, each after the new image is complete
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Export all volumes and snapshots read-only over NBD on this Unix socket until interrupted.
    /// Only the current user may connect
    #[arg(long, value_name = "SOCKET")]
    pub(crate) nbd: Option<PathBuf>,
    /// Read and verify all data to find losses, instead of assuming that the present drives are
    /// intact. Takes as long as a check
    #[arg(long, conflicts_with = "action")]
    pub(crate) verify: bool,
    /// Also return data that may be older than the newest write, or deleted since. Searches the
    /// whole log for blocks below unreadable map nodes
    #[arg(long)]
    pub(crate) accept_stale: bool,
}
