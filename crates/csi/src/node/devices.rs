//! Exports of this node's daemon as block devices of its kernel: ublk devices, NVMe/TCP and NBD
//! disks, and files with loop devices.
//!
//! Must not know: when a volume is attached, and by which protocol.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

use api::VolumeName;
use api::types::{Export, ExportState, Protocol, Volume};
use loop_device::{LoopDevice, LoopOptions};
use tonic::Status;

use super::context::NodeContext;
use crate::host::device::DeviceNumber;
use crate::host::nbd::NbdExport;
use crate::host::nvme::NvmeLogin;
use crate::host::nvme_secrets::NvmeSecrets;
use crate::host::{loops, nbd};
use crate::network::{NetworkDisk, NodeIdentity};

/// The address of NVMe/TCP disks of this host. The port differs from that of disks for other hosts,
/// because the daemon may listen for those on all addresses.
pub(super) const LOCAL_ADDRESS: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4421));

/// The block device of a volume.
#[derive(Debug)]
pub(super) enum AttachedDevice {
    /// A loop device. It is open, so that it keeps its file although a daemon or a person detaches
    /// it.
    Loop(LoopDevice),
    /// A device of another kind.
    Other(PathBuf),
}

impl AttachedDevice {
    /// Returns the device of a mounted file system. Returns `None` if it does not exist.
    pub(super) async fn mounted(number: DeviceNumber) -> Result<Option<Self>, Status> {
        Ok(match number.path() {
            // The mount has kept its file.
            Some(path) if loops::is_loop(number) => loops::open(&path).await?.map(Self::Loop),
            path => path.map(Self::Other),
        })
    }

    /// Returns the path of the device.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Loop(device) => device.path(),
            Self::Other(path) => path,
        }
    }
}

/// Returns the file, the device or the URI of an export.
fn address(export: &Export) -> Result<&str, Status> {
    match (export.state, export.uris.first()) {
        (ExportState::Active, Some(address)) => Ok(address),
        (_, address) => {
            let reason =
                export.reason.as_deref().or(address.map(|_| "it is not active")).unwrap_or("no address");
            Err(Status::unavailable(format!("export of '{}/{}': {reason}", export.pool, export.volume)))
        }
    }
}

/// Returns the NQN of an NVMe/TCP disk that the driver made.
fn target(export: &Export) -> &str {
    export.network.target.as_deref().unwrap_or_default()
}

/// Returns the export that the kernel's NBD client can reach.
pub(super) fn nbd_export(export: &Export) -> Result<NbdExport, Status> {
    address(export)?;
    on_unix_socket(export).ok_or_else(|| {
        Status::failed_precondition(
            "the daemon does not serve NBD on a Unix socket; set 'socket' in section 'nbd' of its configuration",
        )
    })
}

/// Returns the export on a Unix socket, whatever its state.
fn on_unix_socket(export: &Export) -> Option<NbdExport> {
    export.uris.iter().find_map(|uri| NbdExport::of(uri))
}

impl NodeContext {
    /// Returns the device of a raw block volume, by the number of its node in the staging
    /// directory. Returns `None` if it does not exist. A node keeps no device open, so that a loop
    /// device may have got the file of another process; it then counts as one that does not exist.
    pub(super) async fn raw_device(
        &self,
        name: &VolumeName,
        number: DeviceNumber,
    ) -> Result<Option<AttachedDevice>, Status> {
        let Some(path) = number.path() else { return Ok(None) };
        if !loops::is_loop(number) {
            return Ok(Some(AttachedDevice::Other(path)));
        }
        let file = self.export_of(name).await?.and_then(|export| export.uris.into_iter().next());
        Ok(loops::reopen(&path, file.map(PathBuf::from)).await?.map(AttachedDevice::Loop))
    }

    /// Returns the device of an export; `None` if there is none, or if it lost its daemon forever.
    pub(super) async fn device_of(&self, export: &Export) -> Result<Option<PathBuf>, Status> {
        match export.protocol {
            Protocol::Ublk => Ok(std::fs::canonicalize(address(export)?).ok()),
            Protocol::NvmeTcp => Ok(self.nvme.device(target(export))),
            Protocol::Nbd => Ok(self.nbd.device(&nbd_export(export)?)),
            _ => Ok(loops::current(Path::new(address(export)?)).await?),
        }
    }

    /// Returns all devices of an export that must be removed before it, also failed ones.
    pub(super) async fn devices_of(&self, export: &Export) -> Result<Vec<AttachedDevice>, Status> {
        let other = match export.protocol {
            Protocol::Fuse => {
                let Some(file) = export.uris.first() else { return Ok(Vec::new()) };
                let devices = loops::of_file(Path::new(file)).await?;
                return Ok(devices.into_iter().map(AttachedDevice::Loop).collect());
            }
            Protocol::Nbd => on_unix_socket(export).and_then(|export| self.nbd.device(&export)),
            Protocol::NvmeTcp => self.nvme.device(target(export)),
            _ => None,
        };
        Ok(other.map(AttachedDevice::Other).into_iter().collect())
    }

    /// Returns true if an export has a device, or can get one by the protocol that this node uses.
    pub(super) async fn is_usable(&self, export: &Export, protocol: Protocol) -> Result<bool, Status> {
        if self.device_of(export).await?.is_some() {
            return Ok(true);
        }
        // Nobody knows the secrets of an NVMe/TCP disk to which the kernel does not connect.
        let is_lost = protocol == Protocol::NvmeTcp && self.nvme.controllers(target(export)).is_empty();
        Ok(export.protocol == protocol && !is_lost)
    }

    /// Makes the device of an export. Returns the device, which is the same for a repeated call.
    pub(super) async fn attach_export(
        &self,
        export: &Export,
        volume: &Volume,
        secrets: Option<&NvmeSecrets>,
    ) -> Result<AttachedDevice, Status> {
        let path = match export.protocol {
            Protocol::Ublk => {
                let link = address(export)?;
                std::fs::canonicalize(link).map_err(|error| Status::internal(format!("{link}: {error}")))?
            }
            Protocol::NvmeTcp => {
                let disk = NetworkDisk::of(export)?;
                let node = NodeIdentity::of(&self.node_id);
                let login = NvmeLogin { nqn: &node.nqn, id: &node.id, secrets };
                let device = self.nvme.connect(&disk.nqn, &disk.addresses, login).await?;
                self.nvme.update_size(&disk.nqn, volume.size).await?;
                device
            }
            Protocol::Nbd => {
                let disk = nbd_export(export)?;
                match self.nbd.device(&disk) {
                    None => self.nbd.connect(&disk, volume.sector).await?,
                    Some(device) => {
                        if export.connections == 0 {
                            self.nbd.reconnect(&disk).await?;
                        }
                        self.nbd.update_size(&disk, volume.size).await?;
                        device
                    }
                }
            }
            _ => {
                let options = LoopOptions { sector: volume.sector, read_only: export.read_only };
                let device = loops::ensure(Path::new(address(export)?), options).await?;
                return Ok(AttachedDevice::Loop(device));
            }
        };
        Ok(AttachedDevice::Other(path))
    }

    /// Gives the device of an export the present size of the volume.
    pub(super) async fn update_size(
        &self,
        export: &Export,
        device: &Path,
        volume: &Volume,
    ) -> Result<(), Status> {
        match export.protocol {
            Protocol::Fuse => Ok(loops::update_size(device, address(export)?.into()).await?),
            Protocol::Nbd => Ok(self.nbd.update_size(&nbd_export(export)?, volume.size).await?),
            Protocol::NvmeTcp => Ok(self.nvme.update_size(target(export), volume.size).await?),
            _ => Ok(()),
        }
    }

    /// Removes a loop device or an NBD disk; does nothing for other devices.
    pub(super) async fn remove_device(&self, device: AttachedDevice) -> Result<(), Status> {
        match device {
            AttachedDevice::Loop(device) => Ok(loops::detach(device).await?),
            AttachedDevice::Other(path) if DeviceNumber::of(&path).is_some_and(nbd::is_nbd) => {
                Ok(self.nbd.disconnect(&path).await?)
            }
            AttachedDevice::Other(_) => Ok(()),
        }
    }
}
