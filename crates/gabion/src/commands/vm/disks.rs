//! The disks of a machine: volumes exported over vhost-user.

use std::path::PathBuf;

use anyhow::Result;
use api::types::{Export, ExportState, Protocol};
use api::{Error, ErrorKind};
use vm::Machine;

use super::super::calls::ExportOptions;
use super::VmContext;
use api::VolumeName;

impl VmContext<'_> {
    /// Returns the sockets of a machine's disks; creates missing exports. With `to_start`, refuses
    /// disks that are in use.
    ///
    /// # Errors
    /// If a disk is exported over another protocol, not served, or in use.
    pub(super) async fn sockets(&self, machine: &Machine, to_start: bool) -> Result<Vec<PathBuf>> {
        let exports = self.ctx.client.list_exports().await?;
        let mut sockets = Vec::new();
        for disk in &machine.disks {
            let name: VolumeName = parse_volume(&disk.volume)?;
            let of_volume =
                exports.iter().filter(|export| export.pool == name.pool && export.volume == name.volume);
            let existing =
                of_volume.min_by_key(|export| (export.protocol != Protocol::VhostUser, export.connections));
            let created;
            let export = match existing {
                Some(export) => export,
                None => {
                    let reactors = machine.reactors.clone();
                    let options =
                        ExportOptions { protocol: Protocol::VhostUser, read_only: disk.read_only, reactors };
                    created = self.ctx.export(&name, options).await?;
                    &created
                }
            };
            check(export, &name, to_start)?;
            sockets.push(socket(export)?);
        }
        Ok(sockets)
    }
}

/// Parses the name of a disk's volume.
pub(super) fn parse_volume(name: &str) -> Result<VolumeName, Error> {
    name.parse()
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("invalid volume name '{name}': {error}")))
}

fn check(export: &Export, name: &VolumeName, to_start: bool) -> Result<(), Error> {
    if export.protocol != Protocol::VhostUser {
        let message = format!("volume {name} is exported over {}, not vhost-user", export.protocol);
        return Err(Error::new(ErrorKind::Busy, message).hint(format!(
            "'gabion export delete {name}' deletes that export; 'gabion vm start' creates the right one"
        )));
    }
    if !to_start {
        return Ok(());
    }
    if export.state != ExportState::Active {
        let reason = export.reason.as_deref().unwrap_or("its export is not active");
        return Err(Error::new(ErrorKind::NotOpen, format!("volume {name}: {reason}"))
            .hint(format!("'gabion pool status {}' shows the reason", name.pool)));
    }
    if export.connections > 0 {
        let message = format!("volume {name} is in use as a disk of another machine");
        return Err(
            Error::new(ErrorKind::Busy, message).hint("'gabion export list' shows the connected clients")
        );
    }
    Ok(())
}

fn socket(export: &Export) -> Result<PathBuf, Error> {
    let path = export.uris.iter().find_map(|uri| uri.strip_prefix("unix:")).map(PathBuf::from);
    path.ok_or_else(|| {
        Error::new(ErrorKind::Internal, "the daemon returned no socket for a vhost-user export")
    })
}
