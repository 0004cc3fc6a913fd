//! A machine's disks: volumes, and their exports by vhost-user.

use std::path::PathBuf;

use anyhow::Result;
use server::wire::{CreateExport, CreateVolume, Export, ExportState, Operation, Protocol, Volume};
use server::{Error, ErrorKind};
use vm::Machine;

use super::Work;
use crate::cli::VolumeName;
use crate::client::segment;
use crate::progress::follow;

impl Work<'_> {
    /// A volume, if there is one.
    pub(super) async fn volume(&self, name: &VolumeName) -> Result<Option<Volume>> {
        let path = format!("/v1/pools/{}/volumes/{}", segment(&name.pool), segment(&name.volume));
        let found: Result<Volume> = self.setting.client.get(&path).await;
        match found {
            Ok(volume) => Ok(Some(volume)),
            Err(error) => match error.downcast_ref::<Error>() {
                Some(known)
                    if known.kind() == ErrorKind::NotFound && known.to_string().contains("no volume") =>
                {
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }

    pub(super) async fn create_volume(&self, name: &VolumeName, size: u64) -> Result<Volume> {
        let path = format!("/v1/pools/{}/volumes", segment(&name.pool));
        let request = CreateVolume { name: name.volume.clone(), size, sector: None };
        self.setting.client.post(&path, &request).await
    }

    pub(super) async fn delete_volume(&self, name: &VolumeName) -> Result<()> {
        let path = format!("/v1/pools/{}/volumes/{}", segment(&name.pool), segment(&name.volume));
        let started: Operation = self.setting.client.delete(&path).await?;
        follow(&self.setting.client, started, self.setting.quiet).await.map(drop)
    }

    pub(super) async fn export(&self, name: &VolumeName, manner: Manner) -> Result<Export> {
        let Manner { protocol, read_only, reactors } = manner;
        let VolumeName { pool, volume } = name.clone();
        let request = CreateExport { pool, volume, protocol, read_only, queues: None, reactors };
        self.setting.client.post("/v1/exports", &request).await
    }

    pub(super) async fn exports(&self) -> Result<Vec<Export>> {
        self.setting.client.get("/v1/exports").await
    }

    pub(super) async fn end_export(&self, name: &VolumeName) -> Result<()> {
        let path = format!("/v1/exports/{}/{}", segment(&name.pool), segment(&name.volume));
        let _nothing: Option<()> = self.setting.client.delete(&path).await?;
        Ok(())
    }

    /// The sockets of a machine's disks; exports that are missing are made. `to_start` refuses disks that are in use.
    ///
    /// # Errors
    /// When a disk cannot be served, or is somebody else's.
    pub(super) async fn sockets(&self, machine: &Machine, to_start: bool) -> Result<Vec<PathBuf>> {
        let exports = self.exports().await?;
        let mut sockets = Vec::new();
        for disk in &machine.disks {
            let name: VolumeName =
                disk.volume.parse().map_err(|error| Error::new(ErrorKind::Invalid, error))?;
            let found =
                exports.iter().find(|export| export.pool == name.pool && export.volume == name.volume);
            let made;
            let export = match found {
                Some(export) => export,
                None => {
                    let reactors = machine.reactors.clone();
                    let manner =
                        Manner { protocol: Protocol::VhostUser, read_only: disk.read_only, reactors };
                    made = self.export(&name, manner).await?;
                    &made
                }
            };
            check(export, &name, to_start)?;
            sockets.push(socket(export)?);
        }
        Ok(sockets)
    }
}

/// How a volume is served.
pub(super) struct Manner {
    pub(super) protocol: Protocol,
    pub(super) read_only: bool,
    pub(super) reactors: Vec<u32>,
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
