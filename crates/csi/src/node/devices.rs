//! Exports of this node's daemon as block devices of its kernel: ublk devices, NVMe/TCP and NBD
//! disks, and files with loop devices.
//!
//! Must not know: when a volume is attached, and by which protocol.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};

use api::types::{Export, ExportState, Protocol, Volume};
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
    /// Returns the device of an export; `None` if there is none, or if it lost its daemon forever.
    pub(super) async fn device_of(&self, export: &Export) -> Result<Option<PathBuf>, Status> {
        match export.protocol {
            Protocol::Ublk => Ok(std::fs::canonicalize(address(export)?).ok()),
            Protocol::NvmeTcp => Ok(self.nvme.device(target(export))),
            Protocol::Nbd => Ok(self.nbd.device(&nbd_export(export)?)),
            _ => {
                let file = Path::new(address(export)?);
                for device in loops::of_file(file) {
                    if loops::is_current(&device, file).await? {
                        return Ok(Some(device));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Returns all devices of an export that must be removed before it, also failed ones.
    pub(super) fn devices_of(&self, export: &Export) -> Vec<PathBuf> {
        let address = export.uris.first().map(Path::new);
        match export.protocol {
            Protocol::Fuse => address.map_or_else(Vec::new, loops::of_file),
            Protocol::Nbd => {
                on_unix_socket(export).and_then(|export| self.nbd.device(&export)).into_iter().collect()
            }
            Protocol::NvmeTcp => self.nvme.device(target(export)).into_iter().collect(),
            _ => Vec::new(),
        }
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
    ) -> Result<PathBuf, Status> {
        match export.protocol {
            Protocol::Ublk => {
                let link = address(export)?;
                std::fs::canonicalize(link).map_err(|error| Status::internal(format!("{link}: {error}")))
            }
            Protocol::NvmeTcp => {
                let disk = NetworkDisk::of(export)?;
                let node = NodeIdentity::of(&self.node_id);
                let login = NvmeLogin { nqn: &node.nqn, id: &node.id, secrets };
                let device = self.nvme.connect(&disk.nqn, &disk.addresses, login).await?;
                self.nvme.update_size(&disk.nqn, volume.size).await?;
                Ok(device)
            }
            Protocol::Nbd => {
                let disk = nbd_export(export)?;
                let Some(device) = self.nbd.device(&disk) else {
                    return Ok(self.nbd.connect(&disk, volume.sector).await?);
                };
                if export.connections == 0 {
                    self.nbd.reconnect(&disk).await?;
                }
                self.nbd.update_size(&disk, volume.size).await?;
                Ok(device)
            }
            _ => self.attach_file(Path::new(address(export)?), export.read_only, volume.sector).await,
        }
    }

    /// Attaches a file to a loop device, and removes devices of the file whose daemon was stopped.
    async fn attach_file(&self, file: &Path, read_only: bool, sector: u32) -> Result<PathBuf, Status> {
        for device in loops::of_file(file) {
            if loops::is_current(&device, file).await? {
                loops::update_size(&device, file).await?;
                return Ok(device);
            }
            loops::detach(&device).await?;
        }
        Ok(loops::attach(file, sector, read_only).await?)
    }

    /// Gives the device of an export the present size of the volume.
    pub(super) async fn update_size(
        &self,
        export: &Export,
        device: &Path,
        volume: &Volume,
    ) -> Result<(), Status> {
        match export.protocol {
            Protocol::Fuse => Ok(loops::update_size(device, Path::new(address(export)?)).await?),
            Protocol::Nbd => Ok(self.nbd.update_size(&nbd_export(export)?, volume.size).await?),
            Protocol::NvmeTcp => Ok(self.nvme.update_size(target(export), volume.size).await?),
            _ => Ok(()),
        }
    }

    /// Removes a loop device or an NBD disk; does nothing for other devices.
    pub(super) async fn remove_device(&self, device: &Path) -> Result<(), Status> {
        match DeviceNumber::of(device) {
            Some(number) if loops::is_loop(number) => Ok(loops::detach(device).await?),
            Some(number) if nbd::is_nbd(number) => Ok(self.nbd.disconnect(device).await?),
            _ => Ok(()),
        }
    }
}
