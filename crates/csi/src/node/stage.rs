//! Staging: a volume becomes a mounted file system, or a device, of this node.

use std::collections::HashMap;
use std::path::Path;

use api::VolumeName;
use api::types::Volume;
use tonic::Status;

use super::context::{NodeContext, path, staged_device};
use super::devices::AttachedDevice;
use crate::capability::{FileSystem, VolumeMode, VolumeUse};
use crate::host::device::DeviceNumber;
use crate::host::error::HostError;
use crate::host::{filesystem, mounts};
use crate::names;
use crate::parameters::FS_TYPE;
use crate::proto::csi::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest, NodeUnstageVolumeResponse,
};
use crate::status::required;

/// A volume to stage.
#[derive(Clone, Copy)]
struct StageRequest<'a> {
    name: &'a VolumeName,
    volume: &'a Volume,
    wanted: &'a VolumeUse,
    staging: &'a Path,
    /// The publish context, for network disks.
    published: &'a HashMap<String, String>,
}

impl NodeContext {
    pub(super) async fn stage(
        &self,
        request: NodeStageVolumeRequest,
    ) -> Result<NodeStageVolumeResponse, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let staging = path("staging_target_path", &request.staging_target_path)?;
        let wanted = VolumeUse::parse(request.volume_capability.as_ref())?;
        let of_class = request.volume_context.get(FS_TYPE).map_or("", String::as_str);
        let of_class = FileSystem::parse(FS_TYPE, of_class)?;
        let name = names::volume(id)?;
        let _lock = self.locks.lock(id)?;
        let volume = self.daemon.get(&name).await?;
        std::fs::create_dir_all(&staging).map_err(HostError::at(&staging, "create the directory"))?;
        let published = &request.publish_context;
        let stage =
            StageRequest { name: &name, volume: &volume, wanted: &wanted, staging: &staging, published };
        match &wanted.mode {
            VolumeMode::Block => self.stage_block(&stage).await?,
            VolumeMode::Mounted { kind, options } => {
                let kind = kind.or(of_class).unwrap_or(FileSystem::Xfs);
                self.stage_mounted(&stage, kind, options).await?;
            }
        }
        Ok(NodeStageVolumeResponse {})
    }

    async fn stage_block(&self, request: &StageRequest<'_>) -> Result<(), Status> {
        let StageRequest { name, volume, wanted, staging, published } = *request;
        let file = staged_device(staging);
        let staged = staged_number(&file)?;
        if let Some(number) = staged {
            let current = self.current_device(name).await?;
            if current.as_deref().and_then(DeviceNumber::of) == Some(number) {
                return Ok(());
            }
            self.release(name, staging).await?;
        }
        let device = self.attach(volume, wanted, published).await?;
        create_file(&file)?;
        Ok(mounts::bind(device.path(), &file, false).await?)
    }

    async fn stage_mounted(
        &self,
        request: &StageRequest<'_>,
        kind: FileSystem,
        options: &[String],
    ) -> Result<(), Status> {
        let StageRequest { name, volume, wanted, staging, published } = *request;
        if let Some(mount) = mounts::at(staging)? {
            let current = self.current_device(name).await?;
            if current.as_deref().and_then(DeviceNumber::of) == Some(mount.device) {
                if mount.file_system == kind.name() {
                    return Ok(());
                }
                let problem = format!("volume '{name}' is staged with {}", mount.file_system);
                return Err(Status::already_exists(problem));
            }
            self.release(name, staging).await?;
        }
        self.undo_interrupted_format(name).await?;
        let attached = self.attach(volume, wanted, published).await?;
        let device = attached.path();
        let is_new = self.prepare_file_system(name, device, kind, wanted.read_only).await?;
        // A clone may be larger than its source.
        let may_grow = !is_new && !wanted.read_only;
        if may_grow {
            filesystem::grow_unmounted(device, kind.name(), volume.size).await?;
        }
        let options = mount_options(kind, options, wanted.read_only);
        mounts::mount(device, staging, kind.name(), &options).await?;
        if may_grow && kind == FileSystem::Xfs {
            filesystem::grow(device, staging, kind.name()).await?;
        }
        Ok(())
    }

    /// Removes the mounts of a volume at its staging path, and detaches it.
    async fn release(&self, name: &VolumeName, staging: &Path) -> Result<(), Status> {
        let file = staged_device(staging);
        // The device is opened before the unmount: a loop device that a daemon has detached is free
        // afterwards.
        let device = match (mounts::at(staging)?, staged_number(&file)?) {
            (Some(mount), _) => AttachedDevice::mounted(mount.device).await?,
            (None, raw) => {
                let device = match raw {
                    Some(number) => self.raw_device(name, number).await?,
                    None => None,
                };
                mounts::remove(&file).await?;
                device
            }
        };
        mounts::unmount_all(staging).await?;
        self.detach(name, device).await
    }

    pub(super) async fn unstage(
        &self,
        request: NodeUnstageVolumeRequest,
    ) -> Result<NodeUnstageVolumeResponse, Status> {
        let id = required("volume_id", &request.volume_id)?;
        let staging = path("staging_target_path", &request.staging_target_path)?;
        let name = names::volume(id)?;
        let _lock = self.locks.lock(id)?;
        self.release(&name, &staging).await?;
        Ok(NodeUnstageVolumeResponse {})
    }
}

/// Returns the number of the device that is mounted on a file.
fn staged_number(file: &Path) -> Result<Option<DeviceNumber>, Status> {
    Ok(mounts::at(file)?.and_then(|_| DeviceNumber::of(file)))
}

/// Creates an empty file. Does nothing if it exists.
pub(super) fn create_file(file: &Path) -> Result<(), Status> {
    let created = std::fs::OpenOptions::new().create(true).append(true).open(file);
    created.map(drop).map_err(|error| HostError::at(file, "create the file")(error).into())
}

/// Returns the options of a mount. Clones have the UUID of their source, which XFS refuses to mount
/// twice unless it ignores the UUID. A read-only device cannot replay its journal.
fn mount_options(kind: FileSystem, options: &[String], read_only: bool) -> Vec<String> {
    let mut all = options.to_vec();
    let mut add = |option: &str| {
        if !all.iter().any(|existing| existing == option) {
            all.push(option.to_owned());
        }
    };
    if kind == FileSystem::Xfs {
        add("nouuid");
    }
    if read_only {
        add("ro");
        add(if kind == FileSystem::Xfs { "norecovery" } else { "noload" });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_added_once() {
        let given = ["noatime".to_owned(), "nouuid".to_owned()];
        assert_eq!(mount_options(FileSystem::Xfs, &given, false), ["noatime", "nouuid"]);
        assert_eq!(mount_options(FileSystem::Xfs, &[], true), ["nouuid", "ro", "norecovery"]);
        assert_eq!(mount_options(FileSystem::Ext4, &[], true), ["ro", "noload"]);
    }
}
