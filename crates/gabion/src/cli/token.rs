//! Arguments of `gabion token`.

use api::types::Role;
use clap::{Args, Subcommand};

use super::time_span::seconds;

/// Manage tokens, with which remote clients and the console use the daemon
#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    Create(CreateTokenArgs),
    /// List tokens; their secrets are not stored and cannot be shown
    List,
    /// Delete a token: its holder and its sessions of the console are refused from then on
    #[command(visible_alias = "remove")]
    Delete {
        /// Id of the token, as 'gabion token list' shows it
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// Create a token and print it. The daemon stores only its hash
#[derive(Args, Debug)]
#[command(after_long_help = "\
Roles:
  viewer    reads everything except tokens and the audit log, and changes nothing
  operator  also changes volumes, snapshots, exports, S3 and buckets, and controls drives, rebuild
            and scrub
  admin     everything: also pools, added drives, images, access keys, users and tokens

Examples:
  gabion token create prometheus --role viewer
  (umask 077; gabion token create alice --role admin --expires 30d > ~/.gabion-token)")]
pub(crate) struct CreateTokenArgs {
    /// Name of the person or program that will use the token
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Role of its holder: viewer, operator or admin
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Role,
    /// Time after which the token is refused: 90s, 30min, 12h, 30d or 52w. Without this option, it
    /// is valid until it is deleted
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) expires: Option<u64>,
}
