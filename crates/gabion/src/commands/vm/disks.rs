//! A machine's disks: volumes, and their exports by vhost-user.

use std::path::PathBuf;

use anyhow::Result;
use api::types::{Export, ExportState, Protocol};
use api::{Error, ErrorKind};
use vm::Machine;

use super::super::calls::ExportOptions;
use super::Work;
use api::VolumeName;

impl Work<'_> {
    /// The sockets of a machine's disks; exports that are missing are made. `to_start` refuses disks that are in use.
    ///
    /// # Errors
    /// When a disk cannot be served, or is somebody else's.
    pub(super) async fn sockets(&self, machine: &Machine, to_start: bool) -> Result<Vec<PathBuf>> {
        let exports = self.setting.client.list_exports().await?;
        let mut sockets = Vec::new();
        for disk in &machine.disks {
            let name: VolumeName = parse_volume(&disk.volume)?;
            let own =
                exports.iter().filter(|export| export.pool == name.pool && export.volume == name.volume);
            let found = own.min_by_key(|export| (export.protocol != Protocol::VhostUser, export.connections));
            let made;
            let export = match found {
                Some(export) => export,
                None => {
                    let reactors = machine.reactors.clone();
                    let options =
                        ExportOptions { protocol: Protocol::VhostUser, read_only: disk.read_only, reactors };
                    made = self.setting.export(&name, options).await?;
                    &made
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
        let message = format!("volume {name} is exported by {}, not as a machine's disk", export.protocol);
        return Err(Error::new(ErrorKind::Busy, message)
            .hint(format!("'gabion export delete {name}' ends that; the start makes the right one")));
    }
    if !to_start {
        return Ok(());
    }
    if export.state != ExportState::Active {
        let reason = export.reason.as_deref().unwrap_or("it is not served");
        return Err(Error::new(ErrorKind::NotOpen, format!("volume {name}: {reason}"))
            .hint(format!("'gabion pool status {}' says why", name.pool)));
    }
    if export.connections > 0 {
        let message = format!("volume {name} is in use: another machine has it as its disk");
        return Err(Error::new(ErrorKind::Busy, message).hint("'gabion export list' shows who is connected"));
    }
    Ok(())
}

fn socket(export: &Export) -> Result<PathBuf, Error> {
    let path = export.uris.iter().find_map(|uri| uri.strip_prefix("unix:")).map(PathBuf::from);
    path.ok_or_else(|| {
        Error::new(ErrorKind::Internal, "the daemon does not say where it serves a machine's disk")
    })
}
