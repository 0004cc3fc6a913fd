//! Arguments of `gabion quickstart`.

use std::path::PathBuf;

use api::Size;
use clap::Args;

/// Run a guided demonstration on file drives
///
/// Creates a 4+1 pool on five sparse files, starts a separate daemon, exports a volume over NBD,
/// writes and verifies data with an NBD client, puts an object into a bucket and gets it, runs the
/// small-block and large-block jobs of the RAID reference document, fails a drive, repeats the jobs
/// in degraded mode, verifies the data, restarts the daemon and verifies the data again. At the
/// end, prints the results next to the published ones.
///
/// Needs no root, writes only below its directory, and removes everything at the end or when
/// interrupted. Uses fio, nbdcopy or qemu-img, and curl, if they are installed; otherwise a
/// built-in load generator and built-in clients.
#[derive(Args, Debug, Clone)]
#[command(after_long_help = "\
Examples:
  gabion quickstart
  gabion quickstart --dir /mnt/nvme/try --seconds 10 --keep")]
pub(crate) struct QuickstartArgs {
    /// Directory for all files; created, and removed at the end [default: gabion-quickstart-USER in
    /// /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Duration of each job, in seconds
    #[arg(long, default_value_t = 4, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Size of each of the five drives [default: by free space, at most 4G]
    #[arg(long, value_name = "SIZE")]
    pub(crate) drive_size: Option<Size>,
    /// Keep the pool and the results, and print how to use them
    #[arg(long)]
    pub(crate) keep: bool,
    /// Remove the kept files of an earlier run first
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Use the built-in load generator and NBD client even if fio and nbdcopy are installed
    #[arg(long)]
    pub(crate) built_in: bool,
}
