//! Changes of volumes: size and quality of service.

use api::types::ResizeVolume;
use tonic::Status;

use super::context::{ControllerContext, signed};
use super::size::SizeRange;
use crate::names;
use crate::parameters::QosChange;
use crate::proto::csi::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerModifyVolumeRequest,
    ControllerModifyVolumeResponse,
};
use crate::status::{invalid, of_daemon, required};

impl ControllerContext {
    pub(super) async fn expand_volume(
        &self,
        request: ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let name = names::volume(required("volume_id", &request.volume_id)?)?;
        let sizes = SizeRange::parse(request.capacity_range.as_ref())?;
        if sizes.is_any() {
            return Err(invalid("capacity_range", "is required"));
        }
        let _lock = self.locks.lock(name.base())?;
        let volume = self.daemon.get(&name).await?;
        let size = sizes.choose(volume.size, volume.size)?;
        let volume = if size > volume.size {
            let request = ResizeVolume { size, shrink: false };
            self.daemon.client.resize_volume(&name, &request).await.map_err(of_daemon)?
        } else {
            volume
        };
        // A loop device has a size of its own, so the node has work for raw block volumes, too.
        Ok(ControllerExpandVolumeResponse {
            capacity_bytes: signed(volume.size),
            node_expansion_required: true,
        })
    }

    pub(super) async fn modify_volume(
        &self,
        request: ControllerModifyVolumeRequest,
    ) -> Result<ControllerModifyVolumeResponse, Status> {
        let name = names::volume(required("volume_id", &request.volume_id)?)?;
        let change = QosChange::parse(&request.mutable_parameters)?;
        let _lock = self.locks.lock(name.base())?;
        let volume = self.daemon.get(&name).await?;
        let qos = change.apply(volume.qos);
        if qos != volume.qos {
            self.daemon.client.set_volume_qos(&name, &qos).await.map_err(of_daemon)?;
        }
        Ok(ControllerModifyVolumeResponse {})
    }
}
