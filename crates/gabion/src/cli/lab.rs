//! Arguments of `gabion lab`.

use std::path::PathBuf;

use api::Size;
use bench::lab::Fraction;
use clap::{Args, Subcommand};

/// Create labs: loop devices throttled like real drives, for benchmarks
///
/// All systems under comparison run on the same drives with the same IOPS and bandwidth limits, at
/// a fraction of a real drive's speed. Needs root. A lab does not survive a reboot.
#[derive(Subcommand, Debug)]
pub(crate) enum LabCommand {
    Up(LabUpArgs),
    /// Remove a lab
    ///
    /// Refused while a pool, a file system or a program uses one of its drives, or when a device
    /// differs from the one that the lab created.
    Down {
        /// Name of the lab
        #[arg(value_name = "LAB", default_value = "lab")]
        name: String,
    },
    /// Show the labs of this host: drives, limits, and the throttled processes
    Status,
    /// List the drive models and their published limits
    Models,
    /// Run a program under a lab's limits
    ///
    /// The kernel applies the limits per control group. This command joins the lab's control group
    /// and executes the program; its child processes inherit the group. `gabion bench run` does
    /// this automatically.
    #[command(after_long_help = "\
Examples:
  gabion lab run -- fio --name=x --filename=/dev/loop0 --direct=1 --rw=randread --bs=4k --iodepth=32 --runtime=5
  gabion lab run -- gabion serve")]
    Run {
        /// Name of the lab
        #[arg(long, value_name = "LAB", default_value = "lab")]
        lab: String,
        /// Program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
        program: Vec<String>,
    },
}

/// Create a lab
///
/// Creates files in memory (or in a directory), attaches loop devices, and sets the kernel's I/O
/// limits for them. All space is allocated immediately, so that no drive runs full during a run. On
/// failure or interruption, everything is removed again.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  gabion lab up --drives 10 --model kioxia-cm7 --fraction 1/100
  gabion lab up slow --drives 4 --model disk-7200 --size 8G --dir /var/tmp

Choose the fraction so that the raw drives reach their limits with idle CPU left: 'gabion bench run'
measures them first and reports the CPU usage.")]
pub(crate) struct LabUpArgs {
    /// Name of the lab: letters, digits and '-'
    #[arg(value_name = "LAB", default_value = "lab")]
    pub(crate) name: String,
    /// Number of drives
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) drives: u16,
    /// Drive model, as 'gabion lab models' lists them
    #[arg(long, default_value = "kioxia-cm7", value_name = "MODEL")]
    pub(crate) model: String,
    /// Speed of each drive as a fraction of the model's
    #[arg(long, default_value = "1/100", value_name = "FRACTION")]
    pub(crate) fraction: Fraction,
    /// Size of each drive
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub(crate) size: Size,
    /// Directory for the files [default: memory]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}
