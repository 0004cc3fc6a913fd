//! `gabion export`.

use anyhow::Result;
use api::VolumeName;
use api::types::{CreateExport, DeleteExportQuery, Protocol};

use super::Setting;
use crate::cli::{CreateExportArgs, ExportCommand};
use crate::failure::Outcome;
use crate::output;

/// Runs a command about exports.
///
/// # Errors
/// Why it failed.
pub(crate) async fn run(setting: &Setting, command: ExportCommand) -> Result<Outcome> {
    match command {
        ExportCommand::Create(arguments) => create(setting, arguments).await,
        ExportCommand::List => list(setting).await,
        ExportCommand::Delete { name, id, protocol, force } => {
            setting.client.delete_export(&name, &DeleteExportQuery { id, protocol, force }).await?;
            setting.done(&None::<()>, |_| format!("export of {name} deleted"))?;
            Ok(Outcome::Done)
        }
    }
}

async fn create(setting: &Setting, arguments: CreateExportArgs) -> Result<Outcome> {
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
    let created = setting.client.create_export(&request).await?;
    setting.done(&created, |export| export.uris.join("\n"))?;
    Ok(Outcome::Done)
}

async fn list(setting: &Setting) -> Result<Outcome> {
    let exports = setting.client.list_exports().await?;
    setting.list(&exports, |export| export.name.clone(), output::exports)?;
    Ok(Outcome::Done)
}
