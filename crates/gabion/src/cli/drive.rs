//! Arguments of `gabion drive`.

use std::path::PathBuf;

use clap::Subcommand;

/// List, add, replace, remove, return and identify drives
#[derive(Subcommand, Debug)]
pub(crate) enum DriveCommand {
    /// List the drives of pools
    List {
        /// Name of the pool [default: all pools]
        #[arg(value_name = "POOL")]
        pool: Option<String>,
    },
    /// Mark a drive as failed, for tests and before pulling it
    ///
    /// Refused if the pool would lose data. If enough drives are left, the pool rebuilds the
    /// drive's data on them. 'gabion drive return' takes the drive back.
    Fail {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// Index of the drive in the pool, as 'gabion drive list' shows it
        #[arg(value_name = "INDEX")]
        drive: u16,
        /// Do not ask for confirmation
        #[arg(long, short)]
        yes: bool,
    },
    /// Add a drive of any size to a pool
    ///
    /// Its space is available immediately. A pool with missing columns starts to rebuild them on
    /// the drive.
    #[command(after_long_help = "\
Examples:
  gabion drive add fast /dev/disk/by-id/nvme-KIOXIA_42
  gabion drive add fast /dev/sdf --wipe")]
    Add {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// Block device or existing file
        #[arg(value_name = "DRIVE")]
        drive: PathBuf,
        /// Erase existing data (detected contents are shown first). Drives in use are refused even
        /// with --wipe
        #[arg(long)]
        wipe: bool,
        /// Do not ask for confirmation before --wipe
        #[arg(long, short)]
        yes: bool,
    },
    /// Replace a drive: add a new one, then remove or rebuild the old one
    ///
    /// Waits until the old drive has left the pool and can be pulled. If the command is
    /// interrupted, the daemon continues.
    #[command(after_long_help = "\
Examples:
  gabion drive replace fast 3 --with /dev/disk/by-id/nvme-KIOXIA_42")]
    Replace {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// Index of the old drive in the pool
        #[arg(value_name = "INDEX")]
        drive: u16,
        /// New drive: a block device or existing file
        #[arg(long, value_name = "DRIVE")]
        with: PathBuf,
        /// Erase existing data (detected contents are shown first). Drives in use are refused even
        /// with --wipe
        #[arg(long)]
        wipe: bool,
        /// Do not ask for confirmation before --wipe
        #[arg(long, short)]
        yes: bool,
        /// Do not wait until the old drive has left the pool
        #[arg(long)]
        no_wait: bool,
    },
    /// Drain a drive and remove it from the pool
    ///
    /// Refused if the other drives are too few or too small for its data. Waits until the drive has
    /// left the pool and can be pulled. If the command is interrupted, the daemon continues;
    /// --cancel keeps the drive in the pool.
    Remove {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// Index of the drive in the pool
        #[arg(value_name = "INDEX")]
        drive: u16,
        /// Cancel the removal and keep the drive
        #[arg(long, conflicts_with = "no_wait")]
        cancel: bool,
        /// Do not wait until the drive has left the pool
        #[arg(long)]
        no_wait: bool,
    },
    /// Return a failed or missing drive to the pool; only the writes that it missed are rebuilt
    Return {
        /// Name of the pool
        #[arg(value_name = "POOL")]
        pool: String,
        /// Index of the drive in the pool
        #[arg(value_name = "INDEX")]
        drive: u16,
        /// Current path of the drive [default: its last path]
        #[arg(long, value_name = "DRIVE")]
        path: Option<PathBuf>,
    },
    /// Show the type, use and contents of drives. Needs no daemon, writes nothing
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
