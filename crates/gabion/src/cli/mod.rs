//! The command line's words: commands, flags and their manual.

mod bench;
mod drive;
mod export;
mod lab;
mod pool;
mod quickstart;
mod salvage;
mod serve;
mod vm;
mod volume;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use bench::{
    BenchArgs, BenchCommand, ChurnArgs, CompareArgs, DistributionArg, DrivesArgs, FairnessArgs, MapArgs,
    PlanArgs, RebuildArgs, RecoveryArgs, ReportArgs, ResultsArgs, RunArgs, ScaleArgs, SnapshotsArgs,
    VhostArgs,
};
pub(crate) use drive::DriveCommand;
pub(crate) use export::{CreateExportArgs, ExportCommand};
pub(crate) use lab::{LabCommand, LabUpArgs};
pub(crate) use pool::{CreatePoolArgs, PoolCommand};
pub(crate) use quickstart::QuickstartArgs;
pub(crate) use salvage::SalvageArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use vm::{CreateVmArgs, DiskWords, TemplateCommand, VmCommand};
pub(crate) use volume::{ExportImageArgs, ImportArgs, Limit, QosArgs, VolumeCommand};

/// Software-defined storage: one protected pool out of a server's drives, served as volumes.
#[derive(Parser, Debug)]
#[command(
    name = "gabion",
    disable_version_flag = true,
    propagate_version = false,
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = MANUAL
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const MANUAL: &str = "\
Examples:
  # Everything below on file drives, in one command, with a tour
  gabion quickstart

  # A pool of five drives that survives the loss of any one, a volume, and its NBD address
  gabion pool create fast --scheme 4+1 --drives /dev/nvme{0..4}n1
  gabion volume create fast/vm01 --size 500G
  gabion export create fast/vm01 --nbd

  # A virtual machine on a volume of its own, from a cloud image
  gabion vm create web --boot fast/web --image debian-12-generic.qcow2 --start

  # The same on files, to try it out
  gabion pool create try --level 5 --files /var/tmp/try --file-size 2G --count 5

  # What is wrong, and what to do about it
  gabion pool status

Sizes:
  500G and 500GiB are 500 * 1024^3 bytes, 500GB are 500 * 1000^3; 1.5T, 64K and plain bytes are understood too.

Exit status:
  0  done; for 'pool status' and 'check': all is well
  1  it failed
  2  the command line makes no sense
  3  'pool status': a pool is degraded, failed or unavailable; 'check': damage was found; 'salvage': data is lost

Environment:
  GABION_SOCKET and all settings of 'gabion serve' (see 'gabion serve --help'); NO_COLOR switches colours off.";

/// What every command understands.
#[derive(Args, Debug, Clone)]
pub(crate) struct Global {
    /// Unix socket of the daemon [env: GABION_SOCKET] [default: that of the configuration file, else
    /// /run/gabion/gabion.sock for root and $XDG_RUNTIME_DIR/gabion.sock for others]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print less: nothing for what is done, names alone for what is listed
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Quickstart(QuickstartArgs),
    Serve(ServeArgs),
    #[command(subcommand)]
    Pool(PoolCommand),
    #[command(subcommand)]
    Volume(VolumeCommand),
    #[command(subcommand)]
    Drive(DriveCommand),
    #[command(subcommand)]
    Export(ExportCommand),
    #[command(subcommand)]
    Vm(VmCommand),
    /// Verify a closed pool, without writing a byte
    ///
    /// Reads everything that the pool stores: every checksum, every row of parity, every record and table, and that no
    /// two owners share a block. The pool must not be open: close it first. Needs no daemon.
    ///
    /// Drives may be missing, as many as the pool bears: what they held is computed from the others and compared. If all of
    /// it could be, the pool is degraded but sound; with --json, 'sound' and 'degraded' say so.
    ///
    /// Maps, tables, records of volumes and of the log that cannot be read do not end the check: they are reported, with the ranges of
    /// volumes that are lost with them, and everything else is verified. 'gabion salvage' reads what is left.
    #[command(after_long_help = "\
Examples:
  gabion pool close fast
  gabion check /dev/nvme{0..4}n1

Exit status:
  0  the pool is sound, and all its drives are there
  1  it could not be verified
  3  damage was found, or drives are missing: the first line says which")]
    Check {
        /// The pool's drives, in any order
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
    },
    Salvage(SalvageArgs),
    #[command(subcommand)]
    Bench(BenchCommand),
    #[command(subcommand)]
    Lab(LabCommand),
    /// Print the release, and the versions of the API and of the on-disk format
    Version,
    /// Print a completion script for a shell
    #[command(after_long_help = "\
Examples:
  gabion completions bash > /etc/bash_completion.d/gabion
  gabion completions zsh > /usr/local/share/zsh/site-functions/_gabion
  gabion completions fish > ~/.config/fish/completions/gabion.fish")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_is_explained() {
        fn check(command: &clap::Command, path: &str) {
            assert!(command.get_about().is_some(), "{path} has no explanation");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path} {} has no explanation", argument.get_id());
            }
            command.get_subcommands().for_each(|sub| check(sub, &format!("{path} {}", sub.get_name())));
        }
        let mut command = Cli::command();
        command.build();
        check(&command, "gabion");
    }
}
