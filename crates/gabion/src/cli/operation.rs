//! Arguments of `gabion operation`.

use clap::Subcommand;

/// List, follow and cancel operations of the daemon
///
/// An operation continues after the command that started it has ended. Imports and exports of
/// images can be cancelled; other operations run to their end. A restart of the daemon clears the
/// list.
#[derive(Subcommand, Debug)]
#[command(after_long_help = "\
Examples:
  gabion operation list
  gabion operation wait 7
  gabion operation cancel 7")]
pub(crate) enum OperationCommand {
    /// List the running operations and the last ones that ended
    List,
    /// Wait for the end of an operation, and show its progress
    Wait {
        /// Number of the operation
        #[arg(value_name = "N")]
        id: u64,
    },
    /// Cancel an operation, and wait until its changes are rolled back
    Cancel {
        /// Number of the operation
        #[arg(value_name = "N")]
        id: u64,
    },
}
