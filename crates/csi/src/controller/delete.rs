//! Deletion of volumes and snapshots.

use tonic::Status;

use super::context::ControllerContext;
use crate::daemon::snapshot_name;
use crate::names::{self, GroupName};
use crate::proto::csi::{
    DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest, DeleteVolumeResponse,
};
use crate::status::{invalid, required};

impl ControllerContext {
    pub(super) async fn delete_volume(
        &self,
        request: DeleteVolumeRequest,
    ) -> Result<DeleteVolumeResponse, Status> {
        let id = required("volume_id", &request.volume_id)?;
        // An id of another form cannot exist.
        let Ok(name) = names::volume(id) else { return Ok(DeleteVolumeResponse {}) };
        let _lock = self.locks.lock(name.base())?;
        let Some(volume) = self.daemon.find(&name).await? else { return Ok(DeleteVolumeResponse {}) };
        if !volume.deleting {
            let snapshots = self.daemon.snapshots_of(&name).await?;
            if !snapshots.lasting.is_empty() {
                let mut lasting: Vec<_> = snapshots.lasting.into_iter().collect();
                lasting.sort_unstable();
                let problem = format!("volume '{name}' has snapshots: {}", lasting.join(", "));
                return Err(Status::failed_precondition(format!("{problem}; delete them first")));
            }
            for temporary in &snapshots.temporary {
                self.daemon.delete(&snapshot_name(&name, temporary)).await?;
            }
        }
        self.daemon.delete(&name).await?;
        Ok(DeleteVolumeResponse {})
    }

    pub(super) async fn delete_snapshot(
        &self,
        request: DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse, Status> {
        let id = required("snapshot_id", &request.snapshot_id)?;
        let Ok(name) = names::snapshot(id) else { return Ok(DeleteSnapshotResponse {}) };
        if let Some(group) = GroupName::of(&name) {
            let problem = format!("'{name}' belongs to the group '{}'; delete the group", group.id());
            return Err(invalid("snapshot_id", problem));
        }
        let _lock = self.locks.lock(name.base())?;
        if self.daemon.find(&name).await?.is_some() {
            self.daemon.delete(&name).await?;
        }
        Ok(DeleteSnapshotResponse {})
    }
}
