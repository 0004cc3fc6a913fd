//! `gabion export`.

use anyhow::Result;
use api::VolumeName;
use api::types::{CreateExport, DeleteExportQuery, NetworkOptions, Protocol};

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
    let CreateExportArgs { name, nbd: _, vhost_user, fuse, ublk, nvme_tcp, .. } = arguments;
    let CreateExportArgs { read_only, shared, queues, reactors, listen, subsystem, namespace, host, .. } =
        arguments;
    let VolumeName { pool, volume } = name;
    let protocol = match (vhost_user, fuse, ublk, nvme_tcp) {
        (true, ..) => Protocol::VhostUser,
        (_, true, ..) => Protocol::Fuse,
        (_, _, true, _) => Protocol::Ublk,
        (.., true) => Protocol::NvmeTcp,
        _ => Protocol::Nbd,
    };
    let network = NetworkOptions { listen, target: subsystem, unit: namespace, hosts: host };
    let request = CreateExport { pool, volume, protocol, read_only, shared, queues, reactors, network };
    let created = ctx.client.create_export(&request).await?;
    ctx.done(&created, output::created_export)?;
    Ok(ExitReason::Success)
}

async fn list(ctx: &CommandContext) -> Result<ExitReason> {
    let exports = ctx.client.list_exports().await?;
    ctx.list(&exports, |export| export.name.clone(), output::exports)?;
    Ok(ExitReason::Success)
}
