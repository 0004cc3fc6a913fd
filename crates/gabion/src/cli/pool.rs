//! `gabion pool`.

use std::path::PathBuf;

use api::Size;
use clap::{ArgGroup, Args, Subcommand};

/// Make, list and look after pools
#[derive(Subcommand, Debug)]
pub(crate) enum PoolCommand {
    Create(CreatePoolArgs),
    /// List the pools
    List,
    /// Show how pools are: health, what to do, fill, drives, recovery, counters
    #[command(after_long_help = "\
Exit status:
  0  every pool that is shown is healthy, or was closed on purpose
  3  a pool is degraded, failed or unavailable

Examples:
  gabion pool status                # all pools
  gabion pool status fast --watch   # one, again every two seconds
  gabion pool status -q || page     # for monitoring")]
    Status {
        /// The pools; all if none is named
        #[arg(value_name = "POOL")]
        pools: Vec<String>,
        /// Show it again every two seconds, until interrupted
        #[arg(long, short)]
        watch: bool,
    },
    /// Open a pool that was closed, could not be opened, or comes from another machine
    ///
    /// The daemon looks for the drives where they were last, and by what they hold among all drives of this machine. A
    /// pool that it does not know yet is opened from the drives that are given.
    #[command(after_long_help = "\
Examples:
  gabion pool open fast
  gabion pool open fast --drives /dev/disk/by-id/nvme-*   # after moving the drives to this machine
  gabion pool open fast --degraded                        # a drive is gone for good
  gabion pool open fast --accept-stale                    # the drives with the newest data are gone for good")]
    Open {
        /// The pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Its drives, in any order; others that they name are looked for. With --degraded, no other drive is used
        #[arg(long, num_args = 1.., value_name = "DRIVE")]
        drives: Vec<PathBuf>,
        /// Open an older state than this host has used last. Data written since is lost
        #[arg(long)]
        accept_stale: bool,
        /// Open it although drives are missing, as far as the scheme bears it. What they hold is written to others, if there are
        /// enough; when they come back, what they missed is written to them
        #[arg(long)]
        degraded: bool,
    },
    /// Close a pool, so that its drives can be moved, checked or left alone
    ///
    /// It stays closed when the daemon is restarted, until it is opened again.
    Close {
        /// The pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Disconnect the clients of its exports. The exports come back with the pool
        #[arg(long)]
        force: bool,
        /// Also forget where its drives are, and its exports
        #[arg(long)]
        forget: bool,
    },
    /// Show what happened to a pool: drives lost, added and removed, crashes, volumes made and deleted, thresholds passed
    ///
    /// The pool keeps this itself, at least the last 800 events, through restarts and on whichever machine it is opened.
    #[command(after_long_help = "\
Examples:
  gabion pool events fast
  gabion pool events fast --last 200 --json
  gabion pool events fast --follow          # and what happens from now on, until interrupted")]
    Events {
        /// The pool
        #[arg(value_name = "POOL")]
        name: String,
        /// How many, the newest
        #[arg(long, value_name = "N", default_value_t = 50)]
        last: u32,
        /// Go on with what happens, until interrupted; with --json, an object a line
        #[arg(long, short)]
        follow: bool,
    },
    /// Pause, resume or rate-limit the rebuild
    ///
    /// A rebuild starts automatically. Under load it yields to client I/O but keeps at least 25 % of drive time, within
    /// the limit. The settings apply until the pool is closed.
    #[command(after_long_help = "\
Examples:
  gabion pool rebuild fast --rate-limit 200M    # bytes per second
  gabion pool rebuild fast --rate-limit 0       # no limit
  gabion pool rebuild fast --pause")]
    #[command(group(ArgGroup::new("change").required(true).multiple(true).args(["pause", "resume", "rate_limit"])))]
    Rebuild {
        /// The pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Pause the rebuild until it is resumed
        #[arg(long, conflicts_with = "resume")]
        pause: bool,
        /// Resume the rebuild
        #[arg(long)]
        resume: bool,
        /// Limit in bytes per second; 0 for no limit
        #[arg(long, value_name = "SIZE")]
        rate_limit: Option<Size>,
    },
    /// Scrub a pool: read and verify all data, and rewrite damaged blocks
    ///
    /// Without options, starts a scrub, which runs in the background and continues after a restart. Pools are scrubbed
    /// automatically, by default every 30 days. 'gabion pool status' shows the progress, and the result of the last scrub.
    #[command(after_long_help = "\
Examples:
  gabion pool scrub fast --wait
  gabion pool scrub fast --rate-limit 200M  # bytes per second, until the pool is closed
  gabion pool scrub fast --pause            # and --resume, --cancel
  gabion pool scrub fast --every 7d         # or 'never': on request only")]
    Scrub {
        /// The pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Wait for the end of the scrub; exit with status 3 if damage could not be repaired
        #[arg(long, conflicts_with_all = ["pause", "cancel", "every"])]
        wait: bool,
        /// Limit in bytes per second; 0 for no limit
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
        /// Interval between the starts of two scrubs: a number of days, as in '30d', or 'never'. Stored in the pool
        #[arg(long, value_name = "DAYS", value_parser = days, conflicts_with = "cancel")]
        every: Option<u64>,
    },
    /// Destroy a pool: everything in it is lost
    Destroy {
        /// The pool
        #[arg(value_name = "POOL")]
        name: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

/// Make a pool and open it
///
/// Every drive is looked at first. One that is mounted, in use, or holds a filesystem, a partition table, another pool or
/// anything else that is known is refused, and what was found is named. Nothing is written before all drives are in
/// order.
#[derive(Args, Debug)]
#[command(
    group(ArgGroup::new("protection").required(true).args(["scheme", "level"])),
    group(ArgGroup::new("where").required(true).args(["drives", "files"])),
    after_long_help = "\
Protection:
  k+m spreads data over k drives and adds m of parity: any m drives may be lost. More drives than k+m are used as well:
  data is spread over all of them. A pool's protection is fixed when it is made.

    --level 0    n+0      no protection          --level 5    (n-1)+1  any one drive
    --level 1    1+(n-1)  all but one (n <= 3)   --level 6    (n-2)+2  any two drives
    --level 10   1+1      two copies of everything, over any number of drives

Examples:
  gabion pool create fast --scheme 4+1 --drives /dev/nvme{0..4}n1
  gabion pool create safe --level 6 --drives /dev/disk/by-id/nvme-KIOXIA_*
  gabion pool create wide --scheme 8+2 --drives /dev/nvme{0..23}n1
  gabion pool create try --level 5 --files /var/tmp/try --file-size 2G --count 5"
)]
pub(crate) struct CreatePoolArgs {
    /// Its name: letters, digits, '.', '_' and '-', at most 63
    #[arg(value_name = "POOL")]
    pub(crate) name: String,
    /// Protection: data and parity drives, as in 4+1
    #[arg(long, value_name = "K+M")]
    pub(crate) scheme: Option<String>,
    /// Protection as a RAID level: 0, 1, 5, 6 or 10
    #[arg(long, value_name = "LEVEL")]
    pub(crate) level: Option<String>,
    /// Block devices, or files that exist
    #[arg(long, num_args = 1.., value_name = "DRIVE")]
    pub(crate) drives: Vec<PathBuf>,
    /// Make files in this directory and use them as drives
    #[arg(long, value_name = "DIR", requires = "file_size", requires = "count")]
    pub(crate) files: Option<PathBuf>,
    /// Size of each of these files
    #[arg(long, value_name = "SIZE", requires = "files")]
    pub(crate) file_size: Option<Size>,
    /// How many files
    #[arg(long, value_name = "N", requires = "files")]
    pub(crate) count: Option<u16>,
    /// Erase existing data (detected contents are shown first). Drives in use are refused all the same
    #[arg(long)]
    pub(crate) wipe: bool,
    /// Do not ask before wiping
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// On how many cores the pool can ever run at once [default: by the daemon's threads and the drives' size]
    #[arg(long, value_name = "N")]
    pub(crate) shards: Option<u16>,
}

/// Days as seconds.
fn days(text: &str) -> Result<u64, String> {
    if text == "never" {
        return Ok(0);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u64>().ok());
    match days {
        Some(days @ 1..=3650) => Ok(days * 86_400),
        _ => Err("give a number of days from 1d to 3650d, or 'never'".into()),
    }
}
