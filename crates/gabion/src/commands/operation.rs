//! `gabion operation`.

use anyhow::Result;
use api::types::{OperationQuery, OperationState};
use api::{Error, ErrorKind};

use super::CommandContext;
use crate::cli::OperationCommand;
use crate::failure::ExitReason;
use crate::output;
use crate::progress::follow;

/// Runs a `gabion operation` command.
///
/// # Errors
/// The error of the command, or of the operation.
pub(crate) async fn run(ctx: &CommandContext, command: OperationCommand) -> Result<ExitReason> {
    match command {
        OperationCommand::List => {
            let operations = ctx.client.list_operations().await?;
            ctx.list(&operations, |operation| operation.id.to_string(), output::operations)?;
        }
        OperationCommand::Wait { id } => {
            let started = ctx.client.get_operation(id, &OperationQuery::default()).await?;
            let ended = follow(&ctx.client, started, ctx.quiet).await?;
            ctx.done(&ended, output::operation)?;
        }
        OperationCommand::Cancel { id } => cancel(ctx, id).await?,
    }
    Ok(ExitReason::Success)
}

async fn cancel(ctx: &CommandContext, id: u64) -> Result<()> {
    let operation = ctx.client.cancel_operation(id).await?;
    match follow(&ctx.client, operation, ctx.quiet).await {
        Ok(ended) => {
            let message = format!("operation {id} ({} {}) had already succeeded", ended.kind, ended.target);
            Err(Error::new(ErrorKind::Invalid, message).into())
        }
        Err(error) if error.downcast_ref::<Error>().map(Error::kind) == Some(ErrorKind::Cancelled) => {
            let ended = ctx.client.get_operation(id, &OperationQuery::default()).await?;
            debug_assert_eq!(ended.state, OperationState::Cancelled, "the error says so");
            ctx.done(&ended, output::operation)
        }
        Err(error) => Err(error),
    }
}
