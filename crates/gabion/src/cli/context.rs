//! Arguments of `gabion context`.

use clap::Subcommand;

/// Manage named contexts: remote daemons with their tokens
///
/// Contexts are in ~/.config/gabion/contexts.toml. The options --server, --token-file, --ca-file
/// and --fingerprint describe the daemon of a new context.
#[derive(Subcommand, Debug)]
pub(crate) enum ContextCommand {
    /// Add a context, or replace the one with its name
    #[command(after_long_help = "\
Examples:
  gabion context add rack1 --server https://rack1:9188 --token-file ~/.gabion-token --fingerprint 3A:9F:...
  gabion context use rack1
  gabion pool status
  gabion pool status --context local")]
    Add {
        /// Name of the context
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// List contexts; the current one is marked with a star
    List,
    /// Use a context for all commands that name no daemon
    Use {
        /// Name of the context; 'local' for the daemon of this host
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Remove a context. The file of its token is not removed
    Remove {
        /// Name of the context
        #[arg(value_name = "NAME")]
        name: String,
    },
}
