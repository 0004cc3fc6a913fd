//! `gabion drive`.

use std::path::PathBuf;

use clap::Subcommand;

/// Look at drives, take them out of use
#[derive(Subcommand, Debug)]
pub(crate) enum DriveCommand {
    /// List the drives of pools
    List {
        /// The pool; all if none is named
        #[arg(value_name = "POOL")]
        pool: Option<String>,
    },
    /// Take a drive out of use, as if it had failed: for drills, and before pulling one
    ///
    /// Refused if the pool cannot bear the loss. A drive that was taken out of use takes no further part in the pool.
    Fail {
        /// The pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// The drive's number in the pool, as 'gabion drive list' shows it
        #[arg(value_name = "INDEX")]
        drive: u16,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
    /// Show what drives are and hold. Needs no daemon, and writes nothing
    #[command(after_long_help = "\
Examples:
  gabion drive identify /dev/nvme0n1
  gabion drive identify /dev/disk/by-id/nvme-*")]
    Identify {
        /// Block devices or files
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
    },
}
