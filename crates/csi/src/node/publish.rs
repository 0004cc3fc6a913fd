//! Publishing: a staged volume becomes visible at a path of a container.

use std::path::Path;

use tonic::Status;

use super::context::{NodeContext, path, staged_device};
use super::stage::create_file;
use crate::capability::{VolumeMode, VolumeUse};
use crate::host::device::DeviceNumber;
use crate::host::error::HostError;
use crate::host::mounts::{self, MountEntry};
use crate::names;
use crate::proto::csi::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
};
use crate::status::required;

impl NodeContext {
    pub(super) async fn publish(
        &self,
        request: NodePublishVolumeRequest,
    ) -> Result<NodePublishVolumeResponse, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let target = path("target_path", &request.target_path)?;
        let wanted = VolumeUse::parse(request.volume_capability.as_ref())?;
        let name = names::volume(id)?;
        let staging = path("staging_target_path", &request.staging_target_path)?;
        let _lock = self.locks.lock(id)?;
        self.daemon.get(&name).await?;
        let is_block = wanted.mode == VolumeMode::Block;
        // The kubelet gives the container of a read-only raw block volume a device that it cannot
        // open for writing; the device itself is writable for other containers.
        let source = if is_block { staged_device(&staging) } else { staging };
        let Some(staged) = mounts::at(&source)? else {
            return Err(Status::failed_precondition(format!(
                "volume '{name}' is not staged at {}",
                source.display()
            )));
        };
        let others = published(&staged, &source)?;
        let read_only = request.readonly || wanted.read_only;
        if mounts::at(&target)?.is_some() {
            return check_published(&others, &target, read_only && !is_block);
        }
        if let Some(other) = others.first().filter(|_| wanted.single_container) {
            return Err(Status::failed_precondition(format!(
                "volume '{name}' is in use at {}, and its access mode permits one container",
                other.path.display()
            )));
        }
        if is_block {
            create_file(&target)?;
        } else {
            std::fs::create_dir_all(&target).map_err(HostError::at(&target, "create the directory"))?;
        }
        mounts::bind(&source, &target, read_only && !is_block).await?;
        Ok(NodePublishVolumeResponse {})
    }

    pub(super) async fn unpublish(
        &self,
        request: NodeUnpublishVolumeRequest,
    ) -> Result<NodeUnpublishVolumeResponse, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let target = path("target_path", &request.target_path)?;
        names::volume(id)?;
        let _lock = self.locks.lock(id)?;
        mounts::remove(&target).await?;
        Ok(NodeUnpublishVolumeResponse {})
    }
}

/// Returns the other mounts of the file system at `source`.
fn published(staged: &MountEntry, source: &Path) -> Result<Vec<MountEntry>, Status> {
    let source = std::fs::canonicalize(source).unwrap_or_else(|_| source.to_owned());
    let is_other = |mount: &MountEntry| {
        (mount.device, &mount.root) == (staged.device, &staged.root) && mount.path != source
    };
    Ok(mounts::all()?.into_iter().filter(is_other).collect())
}

/// Checks that the mount at `target` is that of the volume.
fn check_published(
    published: &[MountEntry],
    target: &Path,
    read_only: bool,
) -> Result<NodePublishVolumeResponse, Status> {
    let target = match (target.parent().map(std::fs::canonicalize), target.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => target.to_owned(),
    };
    match published.iter().rfind(|mount| mount.path == target) {
        Some(mount) if mount.read_only == read_only => Ok(NodePublishVolumeResponse {}),
        Some(_) => {
            Err(Status::already_exists(format!("{} is mounted with another access mode", target.display())))
        }
        None => {
            Err(Status::already_exists(format!("another file system is mounted at {}", target.display())))
        }
    }
}

/// Returns the device of the volume at a path of a container, and its file system; no file system
/// for a raw block volume. `None` if no volume is there.
pub(super) fn device_at(path: &Path) -> Result<Option<(DeviceNumber, Option<String>)>, Status> {
    let Some(mount) = mounts::at(path)? else { return Ok(None) };
    Ok(match DeviceNumber::of(path) {
        Some(number) => Some((number, None)),
        None => Some((mount.device, Some(mount.file_system))),
    })
}
