//! Volumes in use: their size and condition.

use std::path::Path;

use api::VolumeName;
use api::types::{Protocol, ResizeVolume};
use tonic::Status;

use super::context::{NodeContext, staged_device};
use super::publish::device_at;
use crate::host::device::{self, DeviceNumber};
use crate::host::{filesystem, loops};
use crate::names;
use crate::network::disk_name;
use crate::options::AttachMode;
use crate::proto::csi::volume_usage::Unit;
use crate::proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    VolumeCondition, VolumeUsage,
};
use crate::status::{of_daemon, required};

/// Condition of a device whose requests wait.
const WAITING: &str = "the daemon cannot be reached; I/O waits for it";
/// Condition of a device that fails all requests.
const FAILED: &str = "the daemon was stopped, and the device of the volume failed: delete the pods that use it, so \
                      that it is attached again";

impl NodeContext {
    pub(super) async fn expand(
        &self,
        request: NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let at = Path::new(required("volume_path", &request.volume_path)?);
        let name = names::volume(id)?;
        let _lock = self.locks.lock(id)?;
        let mut volume = self.daemon.get(&name).await?;
        let wanted =
            request.capacity_range.map_or(0, |range| u64::try_from(range.required_bytes).unwrap_or(0));
        if wanted > volume.size {
            let request = ResizeVolume { size: wanted.next_multiple_of(4096), shrink: false };
            volume = self.daemon.client.resize_volume(&name, &request).await.map_err(of_daemon)?;
        }
        let found = match device_at(at)? {
            None => device_at(&staged_device(at))?,
            found => found,
        };
        let Some((number, file_system)) = found else {
            return Err(Status::not_found(format!(
                "volume_path: volume '{name}' is not at {}",
                at.display()
            )));
        };
        let Some(device) = number.path() else {
            return Err(Status::internal(format!("volume '{name}' has lost its device")));
        };
        let mut reason = "it did not grow";
        if self.attach == AttachMode::NvmeTcp {
            self.nvme.update_size(&disk_name(&name, &self.node_id), volume.size).await?;
        } else if let Some(export) = self.export_of(&name).await? {
            self.update_size(&export, &device, &volume).await?;
            if export.protocol == Protocol::Ublk {
                reason = "the kernel cannot grow ublk devices before Linux 6.16";
            }
        } else {
            reason = "its export does not exist";
        }
        if device::size(&device)? < volume.size {
            return Err(Status::failed_precondition(format!(
                "device {} of volume '{name}' is smaller than the volume: {reason}; delete the pods that use the \
                 volume, so that it is attached again with its new size",
                device.display()
            )));
        }
        if let Some(kind) = file_system {
            filesystem::grow(&device, at, &kind).await?;
        }
        let capacity_bytes = i64::try_from(volume.size).unwrap_or(i64::MAX);
        Ok(NodeExpandVolumeResponse { capacity_bytes })
    }

    pub(super) async fn stats(
        &self,
        request: NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let at = Path::new(required("volume_path", &request.volume_path)?);
        let name = names::volume(id)?;
        self.daemon.get(&name).await?;
        let Some((number, file_system)) = device_at(at)? else {
            return Err(Status::not_found(format!(
                "volume_path: volume '{name}' is not at {}",
                at.display()
            )));
        };
        let condition = self.condition(&name, number).await;
        let usage = match (&file_system, condition.abnormal) {
            (_, true) => Vec::new(),
            (Some(_), false) => file_system_usage(at)?,
            (None, false) => vec![usage(Unit::Bytes, 0, device::size(at)?, 0)],
        };
        Ok(NodeGetVolumeStatsResponse { usage, volume_condition: Some(condition) })
    }

    /// Returns whether the device of a volume still reaches the daemon.
    async fn condition(&self, name: &VolumeName, number: DeviceNumber) -> VolumeCondition {
        if self.attach == AttachMode::NvmeTcp {
            let disk = disk_name(name, &self.node_id);
            return self.network_condition(&disk, self.nvme.device(&disk).is_some());
        }
        let Ok(export) = self.export_of(name).await else {
            return abnormal(if loops::is_loop(number) { FAILED } else { WAITING });
        };
        let current = match &export {
            Some(export) => self.device_of(export).await.ok().flatten(),
            None => None,
        };
        let is_current = current.as_deref().and_then(DeviceNumber::of) == Some(number);
        match export.map(|export| (export.protocol, export.connections)) {
            Some((Protocol::NvmeTcp, _)) => {
                self.network_condition(&disk_name(name, &self.node_id), is_current)
            }
            Some((Protocol::Nbd, 0)) if is_current => abnormal(WAITING),
            Some(_) if is_current => VolumeCondition { abnormal: false, message: "in use".to_owned() },
            _ => abnormal(FAILED),
        }
    }

    /// Returns whether an NVMe/TCP disk is connected.
    fn network_condition(&self, disk: &str, has_device: bool) -> VolumeCondition {
        let paths = self.nvme.controllers(disk);
        let live = paths.iter().filter(|path| path.is_live).count();
        match (has_device, live) {
            (true, 1..) => {
                let message = format!("in use; {live} of {} paths are connected", paths.len());
                VolumeCondition { abnormal: false, message }
            }
            (true, 0) => abnormal(WAITING),
            (false, _) => abnormal("the disk was disconnected: delete the pods that use the volume"),
        }
    }
}

fn abnormal(message: &str) -> VolumeCondition {
    VolumeCondition { abnormal: true, message: message.to_owned() }
}

fn usage(unit: Unit, available: u64, total: u64, used: u64) -> VolumeUsage {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    VolumeUsage { available: signed(available), total: signed(total), used: signed(used), unit: unit.into() }
}

fn file_system_usage(at: &Path) -> Result<Vec<VolumeUsage>, Status> {
    let found =
        rustix::fs::statvfs(at).map_err(|error| Status::internal(format!("{}: {error}", at.display())))?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    let inodes_used = found.f_files.saturating_sub(found.f_ffree);
    Ok(vec![
        usage(Unit::Bytes, bytes(found.f_bavail), bytes(found.f_blocks), bytes(used)),
        usage(Unit::Inodes, found.f_favail, found.f_files, inodes_used),
    ])
}
