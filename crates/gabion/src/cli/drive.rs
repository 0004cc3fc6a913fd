//! `gabion drive`.

use std::path::PathBuf;

use clap::Subcommand;

/// Look at drives, add, replace and remove them, take them out of use and back
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
    /// Refused if the pool cannot bear the loss. What the drive held is written to the others, if there are enough; 'gabion drive
    /// return' takes it back.
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
    /// Take a new drive into a pool, of any size
    ///
    /// Its space is there at once. If columns are missing, they are written to it.
    #[command(after_long_help = "\
Examples:
  gabion drive add fast /dev/disk/by-id/nvme-KIOXIA_42
  gabion drive add fast /dev/sdf --wipe")]
    Add {
        /// The pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// A block device, or a file that exists
        #[arg(value_name = "DRIVE")]
        drive: PathBuf,
        /// Erase existing data (detected contents are shown first). A drive in use is refused all the same
        #[arg(long)]
        wipe: bool,
        /// Do not ask before wiping
        #[arg(long, short)]
        yes: bool,
    },
    /// Take a new drive into a pool in place of another one, which is lost or is emptied
    ///
    /// Ends when the old drive is no part of the pool any more, and can be pulled. Interrupted, that goes on.
    #[command(after_long_help = "\
Examples:
  gabion drive replace fast 3 --with /dev/disk/by-id/nvme-KIOXIA_42")]
    Replace {
        /// The pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// The old drive's number in the pool
        #[arg(value_name = "INDEX")]
        drive: u16,
        /// The new drive: a block device, or a file that exists
        #[arg(long, value_name = "DRIVE")]
        with: PathBuf,
        /// Erase existing data (detected contents are shown first). A drive in use is refused all the same
        #[arg(long)]
        wipe: bool,
        /// Do not ask before wiping
        #[arg(long, short)]
        yes: bool,
        /// Do not wait until the old drive is empty
        #[arg(long)]
        no_wait: bool,
    },
    /// Have everything that a drive holds written to the others; it leaves the pool then
    ///
    /// Refused if the others are too few or have no room. Ends when the drive is no part of the pool any more, and can be
    /// pulled. Interrupted, that goes on; --cancel keeps the drive.
    Remove {
        /// The pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// The drive's number in the pool
        #[arg(value_name = "INDEX")]
        drive: u16,
        /// Keep a drive that was to be removed
        #[arg(long, conflicts_with = "no_wait")]
        cancel: bool,
        /// Do not wait until it is empty
        #[arg(long)]
        no_wait: bool,
    },
    /// Take a drive that was lost back into use: only what it missed is written
    Return {
        /// The pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// The drive's number in the pool
        #[arg(value_name = "INDEX")]
        drive: u16,
        /// Where it is now, if not where it was
        #[arg(long, value_name = "DRIVE")]
        path: Option<PathBuf>,
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
