//! `gabion user`, `gabion group` and `gabion policy`.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use api::types::{ChangeS3Group, ChangeS3Policy, ChangeS3User, CreateS3Group, CreateS3Policy, CreateS3User};

use super::CommandContext;
use crate::cli::{GroupCommand, PolicyCommand, UserCommand};
use crate::failure::ExitReason;
use crate::output;

/// The largest document to read, in bytes. The daemon refuses smaller ones too.
const DOCUMENT_MAX: u64 = 1 << 20;

/// Runs a `gabion user` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run_user(ctx: &CommandContext, command: UserCommand) -> Result<ExitReason> {
    match command {
        UserCommand::Create { name, policy, group, cluster } => {
            let request = CreateS3User { name: name.clone(), policies: named(policy), groups: named(group) };
            let created = match cluster {
                Some(cluster) => ctx.client.create_cluster_user(&cluster, &request).await?,
                None => ctx.client.create_user(&request).await?,
            };
            ctx.done(&created, |_| format!("user {name} created"))?;
        }
        UserCommand::List { cluster } => {
            let users = match cluster {
                Some(cluster) => ctx.client.list_cluster_users(&cluster).await?,
                None => ctx.client.list_users().await?,
            };
            ctx.list(&users, |user| user.name.clone(), output::users)?;
        }
        UserCommand::Show { name, cluster } => {
            let user = match cluster {
                Some(cluster) => ctx.client.get_cluster_user(&cluster, &name).await?,
                None => ctx.client.get_user(&name).await?,
            };
            ctx.print(&user, |user| output::users(std::slice::from_ref(user)))?;
        }
        UserCommand::Set { name, policy, group } => {
            let request = ChangeS3User { policies: policy.map(named), groups: group.map(named) };
            let changed = ctx.client.change_user(&name, &request).await?;
            ctx.done(&changed, |_| format!("user {name} changed"))?;
        }
        UserCommand::Delete { name, cluster } => {
            match cluster {
                Some(cluster) => ctx.client.delete_cluster_user(&cluster, &name).await?,
                None => ctx.client.delete_user(&name).await?,
            }
            ctx.done(&None::<()>, |_| format!("user {name} deleted"))?;
        }
    }
    Ok(ExitReason::Success)
}

/// Runs a `gabion group` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run_group(ctx: &CommandContext, command: GroupCommand) -> Result<ExitReason> {
    match command {
        GroupCommand::Create { name, policy } => {
            let request = CreateS3Group { name: name.clone(), policies: named(policy) };
            let created = ctx.client.create_group(&request).await?;
            ctx.done(&created, |_| format!("group {name} created"))?;
        }
        GroupCommand::List => {
            let groups = ctx.client.list_groups().await?;
            ctx.list(&groups, |group| group.name.clone(), output::user_groups)?;
        }
        GroupCommand::Show { name } => {
            let group = ctx.client.get_group(&name).await?;
            ctx.print(&group, |group| output::user_groups(std::slice::from_ref(group)))?;
        }
        GroupCommand::Set { name, policy } => {
            let changed = ctx.client.change_group(&name, &ChangeS3Group { policies: named(policy) }).await?;
            ctx.done(&changed, |_| format!("group {name} changed"))?;
        }
        GroupCommand::Delete { name } => {
            ctx.client.delete_group(&name).await?;
            ctx.done(&None::<()>, |_| format!("group {name} deleted"))?;
        }
    }
    Ok(ExitReason::Success)
}

/// Runs a `gabion policy` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run_policy(ctx: &CommandContext, command: PolicyCommand) -> Result<ExitReason> {
    match command {
        PolicyCommand::Create { name, file } => {
            let request = CreateS3Policy { name: name.clone(), document: read_document(&file)? };
            let created = ctx.client.create_policy(&request).await?;
            ctx.done(&created, |_| format!("policy {name} created"))?;
        }
        PolicyCommand::List => {
            let policies = ctx.client.list_policies().await?;
            ctx.list(&policies, |policy| policy.name.clone(), output::user_policies)?;
        }
        PolicyCommand::Show { name } => {
            let policy = ctx.client.get_policy(&name).await?;
            ctx.print(&policy, |policy| format!("{:#}", policy.document))?;
        }
        PolicyCommand::Set { name, file } => {
            let request = ChangeS3Policy { document: read_document(&file)? };
            let changed = ctx.client.change_policy(&name, &request).await?;
            ctx.done(&changed, |_| format!("policy {name} changed"))?;
        }
        PolicyCommand::Delete { name } => {
            ctx.client.delete_policy(&name).await?;
            ctx.done(&None::<()>, |_| format!("policy {name} deleted"))?;
        }
    }
    Ok(ExitReason::Success)
}

/// Returns the names of a list; an empty name stands for an empty list.
pub(super) fn named(names: Vec<String>) -> Vec<String> {
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

/// Reads a document from a file, or from standard input for `-`.
fn read_document(path: &Path) -> Result<serde_json::Value> {
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin().take(DOCUMENT_MAX).read_to_string(&mut text).context("standard input")?;
    } else {
        let file = std::fs::File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let read = file.take(DOCUMENT_MAX).read_to_string(&mut text);
        read.with_context(|| format!("cannot read {}", path.display()))?;
    }
    serde_json::from_str(&text).with_context(|| format!("{} is not a JSON document", path.display()))
}
