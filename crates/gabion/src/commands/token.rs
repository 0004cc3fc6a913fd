//! `gabion token` and `gabion audit`.

use anyhow::Result;
use api::types::{AuditQuery, CreateToken};

use super::CommandContext;
use crate::cli::{CreateTokenArgs, TokenCommand};
use crate::failure::ExitReason;
use crate::output;

/// Runs a `gabion token` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run(ctx: &CommandContext, command: TokenCommand) -> Result<ExitReason> {
    match command {
        TokenCommand::Create(CreateTokenArgs { name, role, expires }) => {
            let request = CreateToken { name, role, expires_in: expires };
            let created = ctx.client.create_token(&request).await?;
            // Printed even with --quiet: it cannot be shown again.
            ctx.print(&created, |created| created.secret.clone())?;
        }
        TokenCommand::List => {
            let tokens = ctx.client.list_tokens().await?;
            ctx.list(&tokens, |token| token.id.clone(), output::tokens)?;
        }
        TokenCommand::Delete { id } => {
            ctx.client.delete_token(&id).await?;
            ctx.done(&None::<()>, |_| format!("token {id} deleted"))?;
        }
    }
    Ok(ExitReason::Success)
}

/// Runs `gabion audit`.
///
/// # Errors
/// The error of the command.
pub(crate) async fn audit(ctx: &CommandContext, last: usize) -> Result<ExitReason> {
    let records = ctx.client.list_audit(&AuditQuery { last: Some(last) }).await?;
    ctx.list(&records, |record| record.path.clone(), output::audit)?;
    Ok(ExitReason::Success)
}
