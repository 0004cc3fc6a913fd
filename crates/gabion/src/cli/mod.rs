//! The command line: commands, flags and help texts.

mod bench;
mod cluster;
mod context;
mod csi;
mod drive;
mod export;
mod lab;
mod object;
mod objects;
mod operation;
mod pool;
mod quickstart;
mod roles;
mod salvage;
mod serve;
mod time_span;
mod token;
mod users;
mod vm;
mod volume;
mod webhooks;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use bench::{
    BenchArgs, BenchCommand, ChurnArgs, CompareArgs, DiskBenchArgs, DistributionArg, DrivesArgs,
    FairnessArgs, ListingArgs, MapArgs, NvmeArgs, ObjectsArgs, PlanArgs, RebuildArgs, RecoveryArgs,
    ReportArgs, ResultsArgs, RunArgs, ScaleArgs, SnapshotsArgs, VhostArgs,
};
pub(crate) use cluster::{
    AdoptArgs, ClusterArg, ClusterCommand, ClusterQuickstartArgs, ConfigureArgs, DeployArgs, DiscoverArgs,
    PrepareArgs, RemoveArgs, ServicesArgs,
};
pub(crate) use context::ContextCommand;
pub(crate) use csi::{AttachArg, CsiArgs};
pub(crate) use drive::DriveCommand;
pub(crate) use export::{CreateExportArgs, ExportCommand};
pub(crate) use lab::{LabCommand, LabUpArgs};
pub(crate) use object::{DeleteObjectsArgs, GetObjectArgs, ListObjectsArgs, ObjectCommand, PutObjectArgs};
pub(crate) use objects::{BucketCommand, KeyCommand, MirrorArgs, S3Command};
pub(crate) use operation::OperationCommand;
pub(crate) use pool::{CreatePoolArgs, PoolCommand};
pub(crate) use quickstart::QuickstartArgs;
pub(crate) use roles::{ProviderCommand, RoleCommand};
pub(crate) use salvage::SalvageArgs;
pub(crate) use serve::ServeArgs;
pub(crate) use token::{CreateTokenArgs, TokenCommand};
pub(crate) use users::{GroupCommand, PolicyCommand, UserCommand};
pub(crate) use vm::{CreateVmArgs, DiskSpec, TemplateCommand, VmCommand};
pub(crate) use volume::{ExportImageArgs, ImageFormatArg, ImportArgs, Limit, QosArgs, VolumeCommand};
pub(crate) use webhooks::WebhookCommand;

/// Software-defined storage: pools the drives of a server and exports volumes.
#[derive(Parser, Debug)]
#[command(
    name = "gabion",
    version = env!("GABION_VERSION"),
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
  # Guided demonstration on file drives
  gabion quickstart

  # A pool of five drives that tolerates one failure, a volume, and an NBD export
  gabion pool create fast --scheme 4+1 --drives /dev/nvme{0..4}n1
  gabion volume create fast/vm01 --size 500G
  gabion export create fast/vm01 --nbd

  # A virtual machine with a new volume from a cloud image
  gabion vm create web --boot fast/web --image debian-12-generic.qcow2 --start

  # A test pool on files
  gabion pool create try --level 5 --files /var/tmp/try --file-size 2G --count 5

  # Health, and actions for each problem
  gabion pool status

Sizes:
  500G and 500GiB are 500 * 1024^3 bytes, 500GB are 500 * 1000^3 bytes. 1.5T, 64K and numbers of
  bytes are also valid.

Exit status:
  0  success; 'pool status': healthy; 'check': sound and all drives present
  1  failure
  2  invalid command line
  3  'pool status': a pool is degraded, failed or unavailable; 'check': damage, or drives missing;
     'pool scrub --wait': damage that could not be repaired; 'salvage': data lost or possibly stale

Environment:
  GABION_SOCKET and the variables of all settings (see 'gabion serve --help')
  NO_COLOR disables colours";

/// Options of every command.
#[derive(Args, Debug, Clone)]
pub(crate) struct Global {
    /// Unix socket of the daemon [env: GABION_SOCKET] [default: that of the configuration file,
    /// else /run/gabion/gabion.sock for root and $XDG_RUNTIME_DIR/gabion.sock for other users]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print less: nothing for changes, only names for lists
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// Options that select a remote daemon.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct RemoteArgs {
    /// Remote daemon: https://HOST[:PORT], with port 9188 by default [env: GABION_SERVER]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "socket")]
    pub(crate) server: Option<String>,
    /// File with the token for the remote daemon [env: GABION_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the certificates (PEM) of the authorities that the remote daemon's certificate is
    /// verified with [env: GABION_CA_FILE] [default: those of the system]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "fingerprint")]
    pub(crate) ca_file: Option<PathBuf>,
    /// SHA-256 fingerprint of the remote daemon's certificate [env: GABION_FINGERPRINT]
    #[arg(long, global = true, value_name = "HEX")]
    pub(crate) fingerprint: Option<String>,
    /// Named context (see 'gabion context'); 'local' for the daemon of this host
    /// [env: GABION_CONTEXT]
    #[arg(long, global = true, value_name = "NAME", conflicts_with_all = ["server", "socket"])]
    pub(crate) context: Option<String>,
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
    S3(S3Command),
    #[command(subcommand)]
    Bucket(BucketCommand),
    #[command(subcommand)]
    Object(ObjectCommand),
    #[command(subcommand)]
    Key(KeyCommand),
    #[command(subcommand)]
    User(UserCommand),
    #[command(subcommand)]
    Group(GroupCommand),
    #[command(subcommand)]
    Policy(PolicyCommand),
    #[command(subcommand)]
    Provider(ProviderCommand),
    #[command(subcommand)]
    Role(RoleCommand),
    #[command(subcommand)]
    Webhook(WebhookCommand),
    #[command(subcommand)]
    Operation(OperationCommand),
    #[command(subcommand)]
    Vm(VmCommand),
    #[command(subcommand)]
    Token(TokenCommand),
    #[command(subcommand)]
    Context(ContextCommand),
    /// Show the requests that changed something, with their clients and results
    #[command(after_long_help = "\
Examples:
  gabion audit
  gabion audit --last 20 --json")]
    Audit {
        /// Number of requests, the newest
        #[arg(long, value_name = "N", default_value_t = 100)]
        last: usize,
    },
    Csi(CsiArgs),
    /// Verify all data of a closed pool, without writing
    ///
    /// Reads and verifies everything that the pool stores: checksums, parity, log records and
    /// tables, and that no block has two owners. The pool must be closed. Needs no daemon.
    ///
    /// Up to as many drives may be missing as the scheme tolerates: their data is reconstructed
    /// from the other drives and verified. If all of it can be reconstructed, the pool is reported
    /// as degraded but sound; with --json, in the fields 'sound' and 'degraded'.
    ///
    /// The check continues after unreadable map nodes, tables, volume records and log records: it
    /// reports them with the lost ranges of volumes. 'gabion salvage' reads the remaining data.
    #[command(after_long_help = "\
Examples:
  gabion pool close fast
  gabion check /dev/nvme{0..4}n1

Exit status:
  0  the pool is sound, and all drives are present
  1  the pool could not be verified
  3  damage was found, or drives are missing; the first line of the output names the case")]
    Check {
        /// Drives of the pool, in any order
        #[arg(required = true, value_name = "DRIVE")]
        drives: Vec<PathBuf>,
    },
    Salvage(SalvageArgs),
    #[command(subcommand)]
    Bench(BenchCommand),
    #[command(subcommand)]
    Lab(LabCommand),
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Print a page of the reference documentation as Markdown
    #[command(hide = true)]
    Reference {
        /// Page
        page: ReferencePage,
    },
    /// Write the manual pages of all commands into a directory
    #[command(hide = true)]
    ManualPages {
        /// Directory
        directory: PathBuf,
    },
    /// Print the versions of the program, the API and the on-disk format
    Version,
    /// Print a shell completion script
    #[command(after_long_help = "\
Examples:
  gabion completions bash > /etc/bash_completion.d/gabion
  gabion completions zsh > /usr/local/share/zsh/site-functions/_gabion
  gabion completions fish > ~/.config/fish/completions/gabion.fish")]
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
}

/// A reference page.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
pub(crate) enum ReferencePage {
    /// `docs/cli.md`
    Cli,
    /// `docs/configuration.md`
    Configuration,
    /// `docs/api.md`
    Api,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_definitions_are_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_has_a_help_text() {
        fn check(command: &clap::Command, path: &str) {
            assert!(command.get_about().is_some(), "{path} has no help text");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{path} {} has no help text", argument.get_id());
            }
            command.get_subcommands().for_each(|sub| check(sub, &format!("{path} {}", sub.get_name())));
        }
        let mut command = Cli::command();
        command.build();
        check(&command, "gabion");
    }
}
