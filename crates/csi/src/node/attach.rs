//! The block device of a volume on this node: the device of an export that this module makes, or
//! with network disks, of one that the Controller service made.
//!
//! Always true: the daemon's exports and the kernel's devices are the only record, so that a killed
//! driver continues from them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::types::{CreateExport, DhChapOptions, Export, NetworkOptions, Protocol, Volume};
use api::{ErrorKind, VolumeName};
use tonic::Status;

use super::context::NodeContext;
use super::devices::{AttachedDevice, LOCAL_ADDRESS};
use crate::capability::VolumeUse;
use crate::exports::{OWNER, deletion_of};
use crate::host::device::DeviceNumber;
use crate::host::mounts;
use crate::host::nvme::NvmeLogin;
use crate::host::nvme_secrets::NvmeSecrets;
use crate::network::{NetworkDisk, NodeIdentity, disk_name};
use crate::options::AttachMode;
use crate::status::of_daemon;

/// Control device of the kernel's ublk driver.
const UBLK_CONTROL: &str = "/dev/ublk-control";
/// Pause between two attempts to delete an export whose last user is about to close it.
const CLOSE_PAUSE: Duration = Duration::from_millis(20);
/// Number of these attempts.
const CLOSE_ATTEMPTS: u32 = 250;

/// An export of a volume for this node.
struct NodeExport {
    export: Export,
    /// The secrets of an NVMe/TCP export that was just made; later they are known to the daemon and
    /// the kernel only.
    secrets: Option<NvmeSecrets>,
}

impl NodeContext {
    /// Returns the protocol by which this node attaches volumes of its own daemon: the first one
    /// that the kernel has. The devices of all but the last one survive a restart of the daemon.
    fn protocol(&self) -> Protocol {
        if Path::new(UBLK_CONTROL).exists() {
            Protocol::Ublk
        } else if self.nvme.can_authenticate() {
            Protocol::NvmeTcp
        } else if self.nbd.is_available() {
            Protocol::Nbd
        } else {
            Protocol::Fuse
        }
    }

    /// Returns the export by which this node uses a volume of its own daemon.
    pub(super) async fn export_of(&self, name: &VolumeName) -> Result<Option<Export>, Status> {
        let exports = self.daemon.client.list_exports().await.map_err(of_daemon)?;
        let disk = disk_name(name, &self.node_id);
        let is_own = |export: &Export| {
            let is_of_volume = export.pool == name.pool && export.volume == name.volume;
            // An administrator's export has no owner, and a network disk may be another node's.
            is_of_volume
                && export.owner.as_deref() == Some(OWNER)
                && (export.protocol != Protocol::NvmeTcp || export.network.target.as_ref() == Some(&disk))
        };
        Ok(exports.into_iter().find(is_own))
    }

    /// Returns the device by which this node uses a volume at present; `None` if there is none, or
    /// if it lost its daemon forever.
    pub(super) async fn current_device(&self, name: &VolumeName) -> Result<Option<PathBuf>, Status> {
        if self.attach == AttachMode::NvmeTcp {
            return Ok(self.nvme.device(&disk_name(name, &self.node_id)));
        }
        match self.export_of(name).await? {
            Some(export) => self.device_of(&export).await,
            None => Ok(None),
        }
    }

    /// Attaches a volume. Returns its device, which is the same for a repeated call.
    pub(super) async fn attach(
        &self,
        volume: &Volume,
        wanted: &VolumeUse,
        published: &HashMap<String, String>,
    ) -> Result<AttachedDevice, Status> {
        if self.attach == AttachMode::NvmeTcp {
            return self.connect(published).await.map(AttachedDevice::Other);
        }
        let NodeExport { export, secrets } = self.ensure_export(volume, wanted).await?;
        self.attach_export(&export, volume, secrets.as_ref()).await
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
        let login = NvmeLogin { nqn: &node.nqn, id: &node.id, secrets: None };
        Ok(self.nvme.connect(&disk.nqn, &disk.addresses, login).await?)
    }

    /// Returns the export of a volume for this node, as wanted; makes it if there is none.
    async fn ensure_export(&self, volume: &Volume, wanted: &VolumeUse) -> Result<NodeExport, Status> {
        let name = VolumeName { pool: volume.pool.clone(), volume: volume.name.clone() };
        let protocol = self.protocol();
        let secrets = (protocol == Protocol::NvmeTcp).then(NvmeSecrets::random).transpose();
        let secrets = secrets.map_err(|error| Status::internal(format!("no random secret: {error}")))?;
        let network = secrets.as_ref().map_or_else(NetworkOptions::default, |secrets| NetworkOptions {
            listen: vec![LOCAL_ADDRESS],
            target: Some(disk_name(&name, &self.node_id)),
            hosts: vec![NodeIdentity::of(&self.node_id).nqn],
            dhchap: Some(DhChapOptions {
                secret: Some(secrets.host.clone()),
                controller_secret: Some(secrets.controller.clone()),
            }),
            ..NetworkOptions::default()
        });
        let request = CreateExport {
            read_only: wanted.read_only,
            shared: wanted.shared,
            network,
            owner: Some(OWNER.to_owned()),
            ..CreateExport::new(volume.pool.clone(), volume.name.clone(), protocol)
        };
        // Exports of different protocols can coexist if they are read-only or shared, so the daemon
        // does not refuse a second one.
        if let Some(export) = self.export_of(&name).await? {
            let is_wanted = (export.read_only, export.shared) == (wanted.read_only, wanted.shared);
            if is_wanted && self.is_usable(&export, protocol).await? {
                return Ok(NodeExport { export, secrets: None });
            }
            // A call that was interrupted wanted another access mode, or the device is gone.
            self.detach(&name, None).await?;
        }
        let export = self.daemon.client.create_export(&request).await.map_err(of_daemon)?;
        Ok(NodeExport { export, secrets })
    }

    /// Detaches a volume: its devices, `known` among them, and its export. Does nothing if it is
    /// not attached.
    pub(super) async fn detach(
        &self,
        name: &VolumeName,
        known: Option<AttachedDevice>,
    ) -> Result<(), Status> {
        if self.attach == AttachMode::NvmeTcp {
            let disk = disk_name(name, &self.node_id);
            let device = self.nvme.device(&disk);
            for path in device.as_deref().into_iter().chain(known.as_ref().map(AttachedDevice::path)) {
                check_unused(name, path)?;
            }
            return Ok(self.nvme.disconnect(&disk).await?);
        }
        let export = self.export_of(name).await?;
        let mut devices = match &export {
            Some(export) => self.devices_of(export).await?,
            None => Vec::new(),
        };
        devices.extend(known);
        devices.sort_unstable_by(|left, right| left.path().cmp(right.path()));
        devices.dedup_by(|right, left| right.path() == left.path());
        for device in devices {
            check_unused(name, device.path())?;
            self.remove_device(device).await?;
        }
        self.nvme.disconnect(&disk_name(name, &self.node_id)).await?;
        match export {
            Some(export) => self.delete_export(name, &export).await,
            None => Ok(()),
        }
    }

    /// Deletes an export, after the kernel has closed it.
    async fn delete_export(&self, name: &VolumeName, export: &Export) -> Result<(), Status> {
        let query = deletion_of(export);
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
