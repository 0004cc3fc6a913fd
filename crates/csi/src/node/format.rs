//! The file system of a volume that is staged: made if the volume is blank, else checked.
//!
//! Always true: only a volume without any data is formatted. While it is formatted it has a
//! snapshot of its blank state, which is deleted before the first mount; a call that finds the
//! snapshot rolls an interrupted formatting back.

use std::path::Path;

use api::VolumeName;
use api::types::RollbackVolume;
use tonic::Status;

use super::context::NodeContext;
use crate::capability::FileSystem;
use crate::daemon::snapshot_name;
use crate::host::device;
use crate::host::filesystem::{self, DeviceContents};
use crate::names::FORMAT_SNAPSHOT;
use crate::options::AttachMode;
use crate::status::of_daemon;

impl NodeContext {
    /// Rolls an interrupted formatting back. The volume is not mounted.
    pub(super) async fn undo_interrupted_format(&self, name: &VolumeName) -> Result<(), Status> {
        let blank = snapshot_name(name, FORMAT_SNAPSHOT);
        if self.daemon.find(&blank).await?.is_none_or(|snapshot| snapshot.deleting) {
            return Ok(());
        }
        tracing::warn!(volume = %name, "formatting was interrupted, and begins again");
        self.detach(name, None).await?;
        // The export of a network disk remains, but no other node can use it.
        let request = RollbackVolume { force: self.attach == AttachMode::NvmeTcp };
        self.daemon.client.rollback_volume(&blank, &request).await.map_err(of_daemon)?;
        self.daemon.delete(&blank).await
    }

    /// Makes or checks the file system of an attached volume. Returns true if it is new.
    pub(super) async fn prepare_file_system(
        &self,
        name: &VolumeName,
        device: &Path,
        wanted: FileSystem,
        read_only: bool,
    ) -> Result<bool, Status> {
        let refuse = |found: String| {
            let problem =
                format!("volume '{name}' holds {found}, not {}; it is not formatted", wanted.name());
            Err(Status::failed_precondition(problem))
        };
        match filesystem::probe(device).await? {
            DeviceContents::FileSystem(kind) if kind == wanted.name() => {
                if !read_only {
                    filesystem::check(device, wanted.name()).await?;
                }
                Ok(false)
            }
            DeviceContents::FileSystem(kind) => refuse(format!("a file system of kind {kind}")),
            DeviceContents::Other(found) => refuse(found),
            DeviceContents::Unknown => {
                let usage = self.daemon.client.get_volume_usage(name).await.map_err(of_daemon)?;
                if usage.referenced > 0 {
                    return refuse(format!("{} bytes of unknown data", usage.referenced));
                }
                if read_only {
                    return refuse("nothing, and it is read-only".to_owned());
                }
                self.format(name, device, wanted).await?;
                Ok(true)
            }
        }
    }

    async fn format(&self, name: &VolumeName, device: &Path, wanted: FileSystem) -> Result<(), Status> {
        self.daemon.create_snapshot(name, FORMAT_SNAPSHOT).await?;
        filesystem::format(device, wanted.name()).await?;
        device::flush(device).await?;
        self.daemon.delete(&snapshot_name(name, FORMAT_SNAPSHOT)).await
    }
}
