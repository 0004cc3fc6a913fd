//! The block device of a volume on this node: an export of the daemon, and a loop device if the
//! export is a file; or a disk of the network, whose export the Controller service made.
//!
//! Always true: the daemon's exports and the kernel's loop devices are the only record, so that a
//! killed driver continues from them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::types::{CreateExport, DeleteExportQuery, Export, ExportState, NetworkOptions, Protocol, Volume};
use api::{ErrorKind, VolumeName};
use tonic::Status;

use super::context::NodeContext;
use crate::capability::VolumeUse;
use crate::host::device::DeviceNumber;
use crate::host::{loops, mounts};
use crate::network::{NetworkDisk, NodeIdentity, disk_name};
use crate::options::AttachMode;
use crate::status::of_daemon;

/// Control device of the kernel's ublk driver.
const UBLK_CONTROL: &str = "/dev/ublk-control";
/// Pause between two attempts to delete an export whose last user is about to close it.
const CLOSE_PAUSE: Duration = Duration::from_millis(20);
/// Number of these attempts.
const CLOSE_ATTEMPTS: u32 = 250;

/// Returns the protocol by which this node attaches volumes: ublk if the kernel has it, because its
/// devices survive a restart of the daemon; else files with loop devices, which every kernel has.
fn protocol() -> Protocol {
    if Path::new(UBLK_CONTROL).exists() { Protocol::Ublk } else { Protocol::Fuse }
}

/// Returns the file or device of an export.
fn address(export: &Export) -> Result<PathBuf, Status> {
    match (export.state, export.uris.first()) {
        (ExportState::Active, Some(path)) => Ok(path.into()),
        (_, path) => {
            let reason =
                export.reason.as_deref().or(path.map(|_| "it is not active")).unwrap_or("no address");
            Err(Status::unavailable(format!("export of '{}/{}': {reason}", export.pool, export.volume)))
        }
    }
}

impl NodeContext {
    /// Returns the export by which this node uses a volume.
    async fn export_of(&self, name: &VolumeName) -> Result<Option<Export>, Status> {
        let exports = self.daemon.client.list_exports().await.map_err(of_daemon)?;
        let is_own = |export: &Export| {
            export.pool == name.pool
                && export.volume == name.volume
                && matches!(export.protocol, Protocol::Ublk | Protocol::Fuse)
        };
        Ok(exports.into_iter().find(is_own))
    }

    /// Returns the device by which this node uses a volume at present; `None` if there is none, or
    /// if it lost its daemon.
    pub(super) async fn current_device(&self, name: &VolumeName) -> Result<Option<PathBuf>, Status> {
        if self.attach == AttachMode::NvmeTcp {
            return Ok(self.nvme.device(&disk_name(name, &self.node_id)));
        }
        let Some(export) = self.export_of(name).await? else { return Ok(None) };
        let address = address(&export)?;
        if export.protocol == Protocol::Ublk {
            return Ok(std::fs::canonicalize(address).ok());
        }
        for device in loops::of_file(&address) {
            if loops::is_current(&device, &address).await? {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// Attaches a volume. Returns its device, which is the same for a repeated call.
    pub(super) async fn attach(
        &self,
        volume: &Volume,
        wanted: &VolumeUse,
        published: &HashMap<String, String>,
    ) -> Result<PathBuf, Status> {
        if self.attach == AttachMode::NvmeTcp {
            return self.connect(published).await;
        }
        let export = self.create_export(volume, wanted).await?;
        let address = address(&export)?;
        if export.protocol == Protocol::Ublk {
            return std::fs::canonicalize(&address)
                .map_err(|error| Status::internal(format!("{}: {error}", address.display())));
        }
        for device in loops::of_file(&address) {
            if loops::is_current(&device, &address).await? {
                loops::update_size(&device).await?;
                return Ok(device);
            }
            loops::detach(&device).await?;
        }
        Ok(loops::attach(&address, volume.sector, wanted.read_only).await?)
    }

    /// Connects to the disk of a publish context.
    async fn connect(&self, published: &HashMap<String, String>) -> Result<PathBuf, Status> {
        let disk = NetworkDisk::from_context(published)?;
        if !self.nvme.is_available() {
            return Err(Status::failed_precondition(
                "the kernel of this node has no NVMe/TCP initiator; 'modprobe nvme-tcp' loads it",
            ));
        }
        let node = NodeIdentity::of(&self.node_id);
        Ok(self.nvme.connect(&disk.nqn, &disk.addresses, (&node.nqn, &node.id)).await?)
    }

    async fn create_export(&self, volume: &Volume, wanted: &VolumeUse) -> Result<Export, Status> {
        let request = CreateExport {
            pool: volume.pool.clone(),
            volume: volume.name.clone(),
            protocol: protocol(),
            read_only: wanted.read_only,
            shared: wanted.shared,
            queues: None,
            reactors: Vec::new(),
            network: NetworkOptions::default(),
        };
        let error = match self.daemon.client.create_export(&request).await {
            Ok(export) => return Ok(export),
            Err(error) => error,
        };
        if !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Exists) {
            return Err(of_daemon(error));
        }
        let name = VolumeName { pool: volume.pool.clone(), volume: volume.name.clone() };
        match self.export_of(&name).await? {
            Some(export) if (export.read_only, export.shared) == (wanted.read_only, wanted.shared) => {
                Ok(export)
            }
            Some(_) => {
                // A call that was interrupted wanted another access mode.
                self.detach(&name, None).await?;
                self.daemon.client.create_export(&request).await.map_err(of_daemon)
            }
            None => Err(of_daemon(error)),
        }
    }

    /// Detaches a volume: its loop devices, `known` among them, and its export. Does nothing if it
    /// is not attached.
    pub(super) async fn detach(&self, name: &VolumeName, known: Option<PathBuf>) -> Result<(), Status> {
        if self.attach == AttachMode::NvmeTcp {
            let disk = disk_name(name, &self.node_id);
            for device in self.nvme.device(&disk).into_iter().chain(known) {
                check_unused(name, &device)?;
            }
            return Ok(self.nvme.disconnect(&disk).await?);
        }
        let export = self.export_of(name).await?;
        let file = export.as_ref().filter(|export| export.protocol == Protocol::Fuse);
        let mut devices = file
            .and_then(|export| export.uris.first())
            .map_or_else(Vec::new, |path| loops::of_file(Path::new(path)));
        devices.extend(known);
        devices.sort_unstable();
        devices.dedup();
        for device in &devices {
            check_unused(name, device)?;
            if DeviceNumber::of(device).is_some_and(loops::is_loop) {
                loops::detach(device).await?;
            }
        }
        match export {
            Some(export) => self.delete_export(name, &export).await,
            None => Ok(()),
        }
    }

    /// Deletes an export, after the kernel has closed it.
    async fn delete_export(&self, name: &VolumeName, export: &Export) -> Result<(), Status> {
        let query = DeleteExportQuery { id: Some(export.id.clone()), ..DeleteExportQuery::default() };
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.daemon.client.delete_export(name, &query).await {
                Err(error) if error.kind() == ErrorKind::Busy && attempts < CLOSE_ATTEMPTS => {
                    tokio::time::sleep(CLOSE_PAUSE).await;
                }
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(of_daemon(error)),
                _ => return Ok(()),
            }
        }
    }
}

/// Checks that no container uses a device any more.
fn check_unused(name: &VolumeName, device: &Path) -> Result<(), Status> {
    let (Some(number), Some(node)) = (DeviceNumber::of(device), device.file_name()) else { return Ok(()) };
    let is_of_device = |mount: &mounts::MountEntry| {
        mount.device == number || mount.file_system == "devtmpfs" && mount.root == Path::new("/").join(node)
    };
    match mounts::all()?.into_iter().find(is_of_device) {
        Some(mount) => Err(Status::failed_precondition(format!(
            "volume '{name}' is still mounted at {}; unmount it first",
            mount.path.display()
        ))),
        None => Ok(()),
    }
}
