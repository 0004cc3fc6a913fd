//! `gabion export`.

use std::path::Path;

use anyhow::{Context, Result};
use api::VolumeName;
use api::types::{
    ChapOptions, CreateExport, DeleteExportQuery, DhChapOptions, NetworkOptions, Protocol, TlsOptions,
};

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
        ExportCommand::Create(arguments) => create(ctx, *arguments).await,
        ExportCommand::List => list(ctx).await,
        ExportCommand::Delete { name, id, protocol, owner, force } => {
            ctx.client.delete_export(&name, &DeleteExportQuery { id, protocol, owner, force }).await?;
            ctx.done(&None::<()>, |_| format!("export of {name} deleted"))?;
            Ok(ExitReason::Success)
        }
    }
}

async fn create(ctx: &CommandContext, arguments: CreateExportArgs) -> Result<ExitReason> {
    let protocol = protocol_of(&arguments);
    let (chap, dhchap) = (chap_of(&arguments)?, dhchap_of(&arguments)?);
    let tls = read_secret(arguments.tls_key.as_deref())?.map(|key| TlsOptions { key: Some(key) });
    let CreateExportArgs { name, read_only, shared, queues, reactors, listen, .. } = arguments;
    let CreateExportArgs { subsystem, namespace, target, lun, host, owner, .. } = arguments;
    let VolumeName { pool, volume } = name;
    let network = NetworkOptions {
        listen: listen.into_iter().map(|address| address.complete(protocol)).collect(),
        target: subsystem.or(target),
        unit: namespace.or(lun),
        hosts: host,
        chap,
        dhchap,
        tls,
    };
    let request =
        CreateExport { pool, volume, protocol, read_only, shared, queues, reactors, network, owner };
    let created = ctx.client.create_export(&request).await?;
    ctx.done(&created, output::created_export)?;
    Ok(ExitReason::Success)
}

fn protocol_of(arguments: &CreateExportArgs) -> Protocol {
    let chosen = [
        (arguments.vhost_user, Protocol::VhostUser),
        (arguments.fuse, Protocol::Fuse),
        (arguments.ublk, Protocol::Ublk),
        (arguments.nvme_tcp, Protocol::NvmeTcp),
        (arguments.iscsi, Protocol::Iscsi),
    ];
    chosen
        .into_iter()
        .find_map(|(is_chosen, protocol)| is_chosen.then_some(protocol))
        .unwrap_or(Protocol::Nbd)
}

/// The credentials of an iSCSI export.
fn chap_of(arguments: &CreateExportArgs) -> Result<Option<ChapOptions>> {
    let Some(user) = arguments.chap_user.clone() else { return Ok(None) };
    Ok(Some(ChapOptions {
        user,
        secret: read_secret(arguments.chap_secret_file.as_deref())?,
        target_user: arguments.chap_target_user.clone(),
        target_secret: read_secret(arguments.chap_target_secret_file.as_deref())?,
    }))
}

/// The secrets of an NVMe export.
fn dhchap_of(arguments: &CreateExportArgs) -> Result<Option<DhChapOptions>> {
    let Some(secret) = read_secret(arguments.secret.as_deref())? else { return Ok(None) };
    let controller_secret = read_secret(arguments.controller_secret.as_deref())?;
    Ok(Some(DhChapOptions { secret: Some(secret), controller_secret }))
}

/// Reads a secret from a file, without the end of its line.
pub(super) fn read_secret(file: Option<&Path>) -> Result<Option<String>> {
    let Some(file) = file else { return Ok(None) };
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the secret in {}", file.display()))?;
    Ok(Some(text.trim_end_matches(['\r', '\n']).to_owned()))
}

async fn list(ctx: &CommandContext) -> Result<ExitReason> {
    let exports = ctx.client.list_exports().await?;
    ctx.list(&exports, |export| export.name.clone(), output::exports)?;
    Ok(ExitReason::Success)
}
