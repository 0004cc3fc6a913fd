//! `gabion provider` and `gabion role`.

use std::path::PathBuf;

use anyhow::{Result, bail};
use api::types::{ChangeS3Provider, ChangeS3Role, CreateS3Provider, CreateS3Role};

use super::CommandContext;
use super::objects::absolute;
use super::users::named;
use crate::cli::{ProviderCommand, RoleCommand};
use crate::failure::ExitReason;
use crate::output;

/// Runs a `gabion provider` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run_provider(ctx: &CommandContext, command: ProviderCommand) -> Result<ExitReason> {
    match command {
        ProviderCommand::Create { name, issuer, audience, user_claim, key_file, authorities } => {
            let request = CreateS3Provider {
                name: name.clone(),
                issuer,
                audiences: audience,
                user_claim,
                key_file: absolute(key_file)?,
                authorities: absolute(authorities)?,
            };
            let created = ctx.client.create_provider(&request).await?;
            ctx.done(&created, |_| format!("provider {name} created"))?;
        }
        ProviderCommand::List => {
            let providers = ctx.client.list_providers().await?;
            ctx.list(&providers, |provider| provider.name.clone(), output::providers)?;
        }
        ProviderCommand::Show { name } => {
            let provider = ctx.client.get_provider(&name).await?;
            ctx.print(&provider, output::provider)?;
        }
        ProviderCommand::Set { name, audience, user_claim, key_file, authorities } => {
            let request = ChangeS3Provider {
                audiences: audience,
                user_claim,
                key_file: absolute_or_empty(key_file)?,
                authorities: absolute_or_empty(authorities)?,
            };
            let changed = ctx.client.change_provider(&name, &request).await?;
            ctx.done(&changed, |_| format!("provider {name} changed"))?;
        }
        ProviderCommand::Delete { name } => {
            ctx.client.delete_provider(&name).await?;
            ctx.done(&None::<()>, |_| format!("provider {name} deleted"))?;
        }
    }
    Ok(ExitReason::Success)
}

/// Runs a `gabion role` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run_role(ctx: &CommandContext, command: RoleCommand) -> Result<ExitReason> {
    match command {
        RoleCommand::Create { name, provider, policy, claim, any_claims, session_max } => {
            let request = CreateS3Role {
                name: name.clone(),
                provider,
                policies: named(policy),
                claims: by_name(claim)?,
                any_claims,
                session_max,
            };
            let created = ctx.client.create_role(&request).await?;
            ctx.done(&created, |_| format!("role arn:aws:iam:::role/{name} created"))?;
        }
        RoleCommand::List => {
            let roles = ctx.client.list_roles().await?;
            ctx.list(&roles, |role| role.name.clone(), output::roles)?;
        }
        RoleCommand::Show { name } => {
            let role = ctx.client.get_role(&name).await?;
            ctx.print(&role, |role| output::roles(std::slice::from_ref(role)))?;
        }
        RoleCommand::Set { name, policy, claim, any_claims, session_max } => {
            let claims = (!claim.is_empty()).then(|| by_name(claim)).transpose()?;
            let request = ChangeS3Role { policies: policy.map(named), claims, any_claims, session_max };
            let changed = ctx.client.change_role(&name, &request).await?;
            ctx.done(&changed, |_| format!("role {name} changed"))?;
        }
        RoleCommand::Delete { name } => {
            ctx.client.delete_role(&name).await?;
            ctx.done(&None::<()>, |_| format!("role {name} deleted"))?;
        }
    }
    Ok(ExitReason::Success)
}

/// Returns the patterns of claims by the names of the claims.
fn by_name(claims: Vec<(String, String)>) -> Result<std::collections::BTreeMap<String, String>> {
    let mut patterns = std::collections::BTreeMap::new();
    for (claim, pattern) in claims {
        if patterns.insert(claim.clone(), pattern).is_some() {
            bail!("the claim '{claim}' is given twice; create a role for each pattern");
        }
    }
    Ok(patterns)
}

/// Returns the absolute path of a file for the daemon; an empty path removes the file.
pub(super) fn absolute_or_empty(path: Option<PathBuf>) -> Result<Option<String>> {
    match path {
        Some(path) if path.as_os_str().is_empty() => Ok(Some(String::new())),
        path => absolute(path),
    }
}
