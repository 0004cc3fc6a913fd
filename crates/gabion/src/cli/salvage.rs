//! `gabion salvage`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

/// Read the remains of a pool that cannot be opened, without writing a byte
///
/// Works with fewer drives than the pool needs, with damaged maps, tables and records of volumes, and with a log of which a part is
/// lost. Lists the volumes and snapshots that are left, and how much of each can be read. The pool must not be open. Needs no daemon.
///
/// A range that cannot be read is an error for readers and a hole in an image; every such range is listed. Nothing else than what was
/// written is ever given out. If a part of the log is lost, data may be older than the newest write; it is given out with
/// --accept-stale only.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("action").args(["volume", "all", "nbd"])),
    after_long_help = "\
Examples:
  gabion salvage --drives /dev/nvme{0..4}n1                                   # what is left
  gabion salvage --drives /dev/nvme{0..4}n1 --verify                          # read all of it to find out
  gabion salvage --drives /dev/nvme{0..4}n1 --volume vm01 --output vm01.img   # a sparse raw image
  gabion salvage --drives /dev/nvme{0..4}n1 --all --output /mnt/rescue        # an image of each
  gabion salvage --drives /dev/nvme{0..4}n1 --nbd /run/rescue.sock            # serve them read-only by NBD
  qemu-img convert --salvage -O qcow2 'nbd+unix:///fast/vm01?socket=/run/rescue.sock' vm01.qcow2

Exit status:
  0  everything can be read, or was read
  1  it failed
  3  something is lost or may be stale: the list says what"
)]
pub(crate) struct SalvageArgs {
    /// The pool's drives that are left, in any order
    #[arg(long, required = true, num_args = 1.., value_name = "DRIVE")]
    pub(crate) drives: Vec<PathBuf>,
    /// Write a sparse raw image of this volume or snapshot; ranges that cannot be read become holes
    #[arg(long, value_name = "VOLUME[@SNAPSHOT]", requires = "output")]
    pub(crate) volume: Option<String>,
    /// Write an image of every volume and snapshot, each to NAME.img
    #[arg(long, requires = "output")]
    pub(crate) all: bool,
    /// The image to write; with --all, the directory for the images, which is made if it does not exist
    #[arg(long, value_name = "PATH", conflicts_with = "nbd")]
    pub(crate) output: Option<PathBuf>,
    /// Replace images that exist, each once the new one is complete
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
    /// Serve all volumes and snapshots read-only by NBD on this Unix socket, for this user alone, until interrupted
    #[arg(long, value_name = "SOCKET")]
    pub(crate) nbd: Option<PathBuf>,
    /// Read all data to find out what is lost, instead of trusting the drives that are there. Takes as long as a check
    #[arg(long, conflicts_with = "action")]
    pub(crate) verify: bool,
    /// Also read data that may be older than the newest write, or deleted since. Searches the whole log for blocks whose map cannot be
    /// read
    #[arg(long)]
    pub(crate) accept_stale: bool,
}
