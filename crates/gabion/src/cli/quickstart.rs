//! The words of `gabion quickstart`.

use std::path::PathBuf;

use api::Size;
use clap::Args;

/// Try it: a pool on file drives, a volume, a client, a benchmark, a failed drive, all in one command
///
/// Makes five sparse files and a 4+1 pool on them, starts a daemon of its own, serves a volume by NBD, writes real data
/// with a real client and verifies it, runs the small and large jobs of the RAID reference document, fails a drive, runs
/// the degraded jobs, verifies the data again, restarts the daemon and verifies it once more. Ends with the document's
/// table beside its published figures.
///
/// Needs no root, touches nothing outside its directory, and takes everything away at the end, or when it is interrupted.
/// Uses fio, and nbdcopy or qemu-img, where they are installed; otherwise a load and a client of its own.
#[derive(Args, Debug, Clone)]
#[command(after_long_help = "\
Examples:
  gabion quickstart
  gabion quickstart --dir /mnt/nvme/try --seconds 10 --keep")]
pub(crate) struct QuickstartArgs {
    /// Where its files go; made, and taken away at the end [default: gabion-quickstart-USER in /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// How long each job is measured, in seconds
    #[arg(long, default_value_t = 4, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Size of each of the five drives [default: by free space, at most 4G]
    #[arg(long, value_name = "SIZE")]
    pub(crate) drive_size: Option<Size>,
    /// Leave pool and results in place, and say how to go on with them
    #[arg(long)]
    pub(crate) keep: bool,
    /// Take away what an earlier run kept in the directory
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Use the load and the client of its own even if fio and nbdcopy are there
    #[arg(long)]
    pub(crate) built_in: bool,
}
