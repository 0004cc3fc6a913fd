//! `gabion export`.

use anyhow::Result;
use api::types::{CreateExport, Export, Protocol};

use super::Setting;
use crate::cli::{CreateExportArgs, ExportCommand, VolumeName};
use crate::client::segment;
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
        ExportCommand::Delete { name, force } => delete(setting, &name, force).await,
    }
}

async fn create(setting: &Setting, arguments: CreateExportArgs) -> Result<Outcome> {
    let CreateExportArgs { name, nbd: _, vhost_user, fuse, ublk, read_only, queues, reactors } = arguments;
    let VolumeName { pool, volume } = name;
    let protocol = match (vhost_user, fuse, ublk) {
        (true, ..) => Protocol::VhostUser,
        (_, true, _) => Protocol::Fuse,
        (.., true) => Protocol::Ublk,
        _ => Protocol::Nbd,
    };
    let request = CreateExport { pool, volume, protocol, read_only, queues, reactors };
    let created: Export = setting.client.post("/v1/exports", &request).await?;
    setting.done(&created, |export| export.uris.join("\n"))?;
    Ok(Outcome::Done)
}

async fn list(setting: &Setting) -> Result<Outcome> {
    let exports: Vec<Export> = setting.client.get("/v1/exports").await?;
    setting.list(&exports, |export| format!("{}/{}", export.pool, export.volume), output::exports)?;
    Ok(Outcome::Done)
}

async fn delete(setting: &Setting, name: &VolumeName, force: bool) -> Result<Outcome> {
    let (pool, volume) = (segment(&name.pool), segment(&name.volume));
    let path = format!("/v1/exports/{pool}/{volume}?force={force}");
    let nothing: Option<()> = setting.client.delete(&path).await?;
    setting.done(&nothing, |_| format!("{name} is no longer exported"))?;
    Ok(Outcome::Done)
}
