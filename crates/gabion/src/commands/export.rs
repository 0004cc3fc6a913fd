//! `gabion export`.

use anyhow::Result;
use api::VolumeName;
use api::types::{CreateExport, DeleteExportQuery, Protocol};

use super::CommandContext;
use crate::cli::{CreateExportArgs, ExportCommand};
use crate::failure::ExitReason;
use crate::output;

/// Runs a `gabion export` command.
///
/// # Errors
/// The error of the command.
pub(crate) async fn run(ctx: &CommandContext, command: ExportCommand) -> Result<ExitReason> {
    match command {
        ExportCommand::Create(arguments) => create(ctx, arguments).await,
        ExportCommand::List => list(ctx).await,
        ExportCommand::Delete { name, id, protocol, force } => {
            ctx.client.delete_export(&name, &DeleteExportQuery { id, protocol, force }).await?;
            ctx.done(&None::<()>, |_| format!("export of {name} deleted"))?;
            Ok(ExitReason::Success)
        }
    }
}

async fn create(ctx: &CommandContext, arguments: CreateExportArgs) -> Result<ExitReason> {
    let CreateExportArgs { name, nbd: _, vhost_user, fuse, ublk, read_only, shared, queues, reactors } =
        arguments;
    let VolumeName { pool, volume } = name;
    let protocol = match (vhost_user, fuse, ublk) {
        (true, ..) => Protocol::VhostUser,
        (_, true, _) => Protocol::Fuse,
        (.., true) => Protocol::Ublk,
        _ => Protocol::Nbd,
    };
    let request = CreateExport { pool, volume, protocol, read_only, shared, queues, reactors };
    let created = ctx.client.create_export(&request).await?;
    ctx.done(&created, |export| export.uris.join("\n"))?;
    Ok(ExitReason::Success)
}

async fn list(ctx: &CommandContext) -> Result<ExitReason> {
    let exports = ctx.client.list_exports().await?;
    ctx.list(&exports, |export| export.name.clone(), output::exports)?;
    Ok(ExitReason::Success)
}
