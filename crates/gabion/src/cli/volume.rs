//! `gabion volume`.

use clap::Subcommand;
use server::Size;

use super::VolumeName;

/// Make, list and change volumes
#[derive(Subcommand, Debug)]
pub(crate) enum VolumeCommand {
    /// Create a thin volume: it takes space as it is written
    #[command(after_long_help = "\
Examples:
  gabion volume create fast/vm01 --size 500G
  gabion volume create fast/db --size 1.5TiB --sector 4096")]
    Create {
        /// Its pool and name
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        /// Its size, as in 500G, 1.5TiB or a number of bytes
        #[arg(long, value_name = "SIZE")]
        size: Size,
        /// Sector size that it offers: 512, from which every system boots, or 4096, with which nothing smaller than a
        /// block is ever written
        #[arg(long, value_name = "BYTES", default_value_t = 512)]
        sector: u32,
    },
    /// List volumes
    List {
        /// The pool; all if none is named
        #[arg(value_name = "POOL")]
        pool: Option<String>,
    },
    /// Show one volume
    Show {
        /// Its pool and name
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
    },
    /// Change a volume's size
    ///
    /// A larger volume has zeros behind its old end. NBD clients see the new size when they connect again.
    Resize {
        /// Its pool and name
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        /// The new size
        #[arg(long, value_name = "SIZE")]
        size: Size,
        /// Allow a smaller size: what lies behind it is lost
        #[arg(long)]
        shrink: bool,
    },
    /// Delete a volume: everything in it is lost
    Delete {
        /// Its pool and name
        #[arg(value_name = "POOL/VOLUME")]
        name: VolumeName,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}
