//! Arguments of `gabion pool`.

use std::path::PathBuf;

use api::Size;
use clap::{ArgGroup, Args, Subcommand};

use super::time_span::seconds;

/// Create, open, close, monitor and destroy pools
#[derive(Subcommand, Debug)]
pub(crate) enum PoolCommand {
    Create(CreatePoolArgs),
    /// List pools
    List,
    /// Show the status of pools: health, problems and actions, space, drives, rebuild, scrub
    #[command(after_long_help = "\
Exit status:
  0  every shown pool is healthy or closed by a user
  3  a pool is degraded, failed or unavailable

Examples:
  gabion pool status                # all pools
  gabion pool status fast --watch   # one pool, refreshed every 2 s
  gabion pool status -q || page     # for monitoring")]
    Status {
        /// Names of the pools [default: all pools]
        #[arg(value_name = "POOL")]
        pools: Vec<String>,
        /// Refresh every two seconds until interrupted
        #[arg(long, short)]
        watch: bool,
    },
    /// Open a pool
    ///
    /// Opens a pool that is closed, failed to open, or was created on another host. The daemon
    /// looks for the drives at their last paths, and then on all block devices of this host by
    /// their superblocks. To open a pool that is new to this daemon, give its drives.
    #[command(after_long_help = "\
Examples:
  gabion pool open fast
  gabion pool open fast --drives /dev/disk/by-id/nvme-*   # after moving the drives to this host
  gabion pool open fast --degraded                        # without a drive that is lost
  gabion pool open fast --accept-stale                    # the drives with the newest data are lost")]
    Open {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Drives of the pool, in any order; the daemon also looks for the other drives that their
        /// superblocks name. With --degraded, only the given drives are used
        #[arg(long, num_args = 1.., value_name = "DRIVE")]
        drives: Vec<PathBuf>,
        /// Open an older state than the last one used on this host. Newer data is lost
        #[arg(long)]
        accept_stale: bool,
        /// Open the pool with missing drives, within the tolerance of the scheme. If enough drives
        /// are left, their data is rebuilt on them; on drives that return later, only the writes
        /// that they missed are rebuilt
        #[arg(long)]
        degraded: bool,
    },
    /// Close a pool, for example to move or check its drives
    ///
    /// The pool stays closed across daemon restarts until it is opened again.
    Close {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Close the pool even if clients are connected to its exports, and disconnect them. The
        /// exports return when the pool is opened
        #[arg(long)]
        force: bool,
        /// Also delete the daemon's record of the pool: drive paths and exports
        #[arg(long)]
        forget: bool,
    },
    /// Show the event log of a pool: drive failures, drives added or removed, crashes, volumes
    /// created or deleted, space thresholds
    ///
    /// The log is stored in the pool: at least the last 800 events, across restarts and hosts.
    #[command(after_long_help = "\
Examples:
  gabion pool events fast
  gabion pool events fast --last 200 --json
  gabion pool events fast --follow          # also new events, until interrupted")]
    Events {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Number of most recent events to show
        #[arg(long, value_name = "N", default_value_t = 50)]
        last: u32,
        /// Also print new events until interrupted; with --json, one object per line
        #[arg(long, short)]
        follow: bool,
    },
    /// Pause, resume or rate-limit the rebuild
    ///
    /// A rebuild starts automatically. Under load it yields to client I/O but keeps at least 25 %
    /// of drive time, within the limit. The settings apply until the pool is closed.
    #[command(after_long_help = "\
Examples:
  gabion pool rebuild fast --rate-limit 200M    # bytes per second
  gabion pool rebuild fast --rate-limit 0       # no limit
  gabion pool rebuild fast --pause")]
    #[command(group(ArgGroup::new("change").required(true).multiple(true).args(["pause", "resume", "rate_limit"])))]
    Rebuild {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Pause the rebuild until it is resumed
        #[arg(long, conflicts_with = "resume")]
        pause: bool,
        /// Resume the rebuild
        #[arg(long)]
        resume: bool,
        /// Rate limit in bytes per second, as in 200M; 0 for no limit
        #[arg(long, value_name = "SIZE")]
        rate_limit: Option<Size>,
    },
    /// Scrub a pool: read and verify all data, and rewrite damaged blocks
    ///
    /// Without options, starts a scrub, which runs in the background and continues after a restart.
    /// Pools are scrubbed automatically, by default every 30 days. 'gabion pool status' shows the
    /// progress, and the result of the last scrub.
    #[command(after_long_help = "\
Examples:
  gabion pool scrub fast --wait
  gabion pool scrub fast --rate-limit 200M  # bytes per second, until the pool is closed
  gabion pool scrub fast --pause            # and --resume, --cancel
  gabion pool scrub fast --every 7d         # or 'never': on request only")]
    Scrub {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Wait for the end of the scrub; exit with status 3 if damage could not be repaired
        #[arg(long, conflicts_with_all = ["pause", "cancel", "every"])]
        wait: bool,
        /// Rate limit in bytes per second, as in 200M; 0 for no limit
        #[arg(long, value_name = "SIZE", conflicts_with = "cancel")]
        rate_limit: Option<Size>,
        /// Pause scrubbing until it is resumed
        #[arg(long, conflicts_with_all = ["resume", "cancel"])]
        pause: bool,
        /// Resume scrubbing
        #[arg(long, conflicts_with = "cancel")]
        resume: bool,
        /// Cancel the scrub in progress
        #[arg(long)]
        cancel: bool,
        /// Interval between the starts of two scrubs, in days, as in '30d', or 'never'. Stored in
        /// the pool
        #[arg(long, value_name = "DAYS", value_parser = days, conflicts_with = "cancel")]
        every: Option<u64>,
    },
    /// Destroy a pool with all its volumes and data
    Destroy {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
}

/// Create a pool and open it
///
/// Inspects all drives first and writes nothing until all of them are accepted. A drive is refused
/// if it is mounted or in use, or if it holds a file system, a partition table, another pool or
/// other known data; the error names it.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("protection").required(true).args(["scheme", "level"])),
    group(ArgGroup::new("where").required(true).args(["drives", "files"])),
    after_long_help = "\
Protection:
  k+m stripes data over k drives with m parity columns and tolerates the failure of any m drives.
  Stripes are distributed over all drives of a pool with more than k+m drives. The scheme of a pool
  is fixed at creation.

    --level 0    n+0      no protection          --level 5    (n-1)+1  any one drive
    --level 1    1+(n-1)  all but one (n <= 3)   --level 6    (n-2)+2  any two drives
    --level 10   1+1      two copies, on two or more drives

Examples:
  gabion pool create fast --scheme 4+1 --drives /dev/nvme{0..4}n1
  gabion pool create safe --level 6 --drives /dev/disk/by-id/nvme-KIOXIA_*
  gabion pool create wide --scheme 8+2 --drives /dev/nvme{0..23}n1
  gabion pool create try --level 5 --files /var/tmp/try --file-size 2G --count 5"
)]
pub(crate) struct CreatePoolArgs {
    /// Name of the pool: letters, digits, '.', '_' and '-', at most 63 characters
    #[arg(value_name = "POOL")]
    pub(crate) name: String,
    /// Protection scheme: data and parity columns, as in 4+1
    #[arg(long, value_name = "K+M")]
    pub(crate) scheme: Option<String>,
    /// RAID level instead of a scheme: 0, 1, 5, 6 or 10
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<String>,
    /// Drives: block devices or existing files
    #[arg(long, num_args = 1.., value_name = "DRIVE")]
    pub(crate) drives: Vec<PathBuf>,
    /// Create files in this directory as drives
    #[arg(long, value_name = "DIR", requires = "file_size", requires = "count")]
    pub(crate) files: Option<PathBuf>,
    /// Size of each file
    #[arg(long, value_name = "SIZE", requires = "files")]
    pub(crate) file_size: Option<Size>,
    /// Number of files
    #[arg(long, value_name = "N", requires = "files")]
    pub(crate) count: Option<u16>,
    /// Erase existing data (detected contents are shown first). Drives in use are refused even with
    /// --wipe
    #[arg(long)]
    pub(crate) wipe: bool,
    /// Do not ask for confirmation before --wipe
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Number of shards: the most cores the pool can use. Fixed at creation [default: by the number
    /// of reactor threads and the drive size]
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<u16>,
}

/// Parses an interval of 1 to 3650 days; returns seconds, 0 for 'never'.
fn days(text: &str) -> Result<u64, String> {
    if text == "never" {
        return Ok(0);
    }
    match seconds(text) {
        Ok(seconds @ 86_400..=315_360_000) => Ok(seconds),
        _ => Err("not an interval: give 1d to 3650d, or 'never'".into()),
    }
}
