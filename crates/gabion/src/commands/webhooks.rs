//! `gabion webhook`.

use anyhow::Result;
use api::types::{ChangeWebhook, CreateWebhook};

use super::CommandContext;
use super::export::read_secret;
use super::objects::absolute;
use super::roles::absolute_or_empty;
use crate::cli::WebhookCommand;
use crate::failure::ExitReason;
use crate::output;

/// Runs a `gabion webhook` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run(ctx: &CommandContext, command: WebhookCommand) -> Result<ExitReason> {
    match command {
        WebhookCommand::Create { name, url, token_file, authorities, allow_http, allow_link_local } => {
            let request = CreateWebhook {
                name,
                url,
                token: read_secret(token_file.as_deref())?,
                authorities: absolute(authorities)?,
                allow_http,
                allow_link_local,
            };
            let created = ctx.client.create_webhook(&request).await?;
            ctx.done(&created, |webhook| format!("webhook {} created", webhook.arn))?;
        }
        WebhookCommand::List => {
            let webhooks = ctx.client.list_webhooks().await?;
            ctx.list(&webhooks, |webhook| webhook.name.clone(), output::webhooks)?;
        }
        WebhookCommand::Show { name } => {
            let webhook = ctx.client.get_webhook(&name).await?;
            ctx.print(&webhook, output::webhook)?;
        }
        WebhookCommand::Set { name, url, token_file, authorities } => {
            let token = match token_file {
                Some(file) if file.as_os_str().is_empty() => Some(String::new()),
                file => read_secret(file.as_deref())?,
            };
            let request = ChangeWebhook { url, token, authorities: absolute_or_empty(authorities)? };
            let changed = ctx.client.change_webhook(&name, &request).await?;
            ctx.done(&changed, |_| format!("webhook {name} changed"))?;
        }
        WebhookCommand::Delete { name } => {
            ctx.client.delete_webhook(&name).await?;
            ctx.done(&None::<()>, |_| format!("webhook {name} deleted"))?;
        }
    }
    Ok(ExitReason::Success)
}
