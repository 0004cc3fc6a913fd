//! The words of `gabion lab`.

use std::path::PathBuf;

use api::Size;
use bench::lab::Fraction;
use clap::{Args, Subcommand};

/// Drives to measure on: throttled loop devices that stand for real drives at a share of their speed
///
/// Every system under comparison meets the same drives, with the same limits in operations and bytes, and efficiency means
/// what it means for real drives. Takes root. A lab is gone with the next start of the machine.
#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    Up(LabUpArgs),
    /// Take a lab away
    ///
    /// Refuses while a pool, a file system or a program uses one of its drives, and when a device is not what the lab made.
    Down {
        /// The lab
        #[arg(value_name = "LAB", default_value = "lab")]
        name: String,
    },
    /// Show the labs of this machine: drives, limits, and whose operations count
    Status,
    /// Show the drives that a lab can imitate, with their published limits
    Models,
    /// Run a program where a lab's limits count for it
    ///
    /// The kernel limits by control group. This moves itself to the lab's and becomes the program; what that starts follows.
    /// `gabion bench run` does it by itself.
    #[command(after_long_help = "\
Examples:
  gabion lab run -- fio --name=x --filename=/dev/loop0 --direct=1 --rw=randread --bs=4k --iodepth=32 --runtime=5
  gabion lab run -- gabion serve")]
    Run {
        /// The lab
        #[arg(long, value_name = "LAB", default_value = "lab")]
        lab: String,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
        program: Vec<String>,
    },
}

/// Make a lab
///
/// Files in memory (or in a directory on a disk), loop devices in front of them, and the kernel's limits on those. Everything
/// is taken at once, so no drive is full in the middle of a run. When the making fails or is interrupted, nothing is left.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion lab up --drives 10 --model kioxia-cm7 --fraction 1/100
  gabion lab up slow --drives 4 --model disk-7200 --size 8G --dir /var/tmp

Choose the fraction so that the raw drives reach their limits with CPU to spare: 'gabion bench run' measures them first and
says how much they took.")]
pub(crate) struct LabUpArgs {
    /// Its name: letters, digits and '-'
    #[arg(value_name = "LAB", default_value = "lab")]
    pub(crate) name: String,
    /// How many drives
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) drives: u16,
    /// The drive that is imitated ('gabion lab models' lists them)
    #[arg(long, default_value = "kioxia-cm7", value_name = "MODEL")]
    pub(crate) model: String,
    /// How much of a real one each drive does
    #[arg(long, default_value = "1/100", value_name = "FRACTION")]
    pub(crate) fraction: Fraction,
    /// Size of each drive
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) size: Size,
    /// A directory on a disk for the files [default: in memory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
