//! The Controller service: volumes and snapshots in the pools of a daemon.

mod change;
mod context;
mod create;
mod delete;
mod groups;
mod list;
mod metadata;
mod page;
mod publish;
mod size;
mod snapshots;

use tonic::{Request, Response, Status};

use crate::calls::run;
use crate::options::AttachMode;
use crate::proto::csi::controller_server::Controller;
use crate::proto::csi::controller_service_capability::rpc::Type as Rpc;
use crate::proto::csi::controller_service_capability::{self, Type};
use crate::proto::csi::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse, ControllerGetCapabilitiesRequest,
    ControllerGetCapabilitiesResponse, ControllerGetVolumeRequest, ControllerGetVolumeResponse,
    ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, ControllerPublishVolumeRequest,
    ControllerPublishVolumeResponse, ControllerServiceCapability, ControllerUnpublishVolumeRequest,
    ControllerUnpublishVolumeResponse, CreateSnapshotRequest, CreateSnapshotResponse, CreateVolumeRequest,
    CreateVolumeResponse, DeleteSnapshotRequest, DeleteSnapshotResponse, DeleteVolumeRequest,
    DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, GetSnapshotRequest, GetSnapshotResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse,
};
pub(crate) use context::{ControllerContext, TOPOLOGY_KEY};
pub(crate) use groups::GroupService;
pub(crate) use metadata::MetadataService;

/// Calls that the driver offers beyond the required ones, if volumes are attached over the network.
const NETWORK_CAPABILITIES: [Rpc; 2] = [Rpc::PublishUnpublishVolume, Rpc::ListVolumesPublishedNodes];

/// Calls that the driver offers beyond the required ones.
const CAPABILITIES: [Rpc; 12] = [
    Rpc::CreateDeleteVolume,
    Rpc::ListVolumes,
    Rpc::GetCapacity,
    Rpc::CreateDeleteSnapshot,
    Rpc::ListSnapshots,
    Rpc::GetSnapshot,
    Rpc::CloneVolume,
    Rpc::ExpandVolume,
    Rpc::VolumeCondition,
    Rpc::GetVolume,
    Rpc::SingleNodeMultiWriter,
    Rpc::ModifyVolume,
];

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct ControllerService {
    pub(crate) context: ControllerContext,
    /// Leave the growth of volumes to the Node service.
    pub(crate) expand_on_node: bool,
}

/// Implements the calls by methods of the context: the name of the call, the method, the object of
/// the log, and the types.
macro_rules! calls {
    ($($call:ident = $method:ident($($field:ident)?), $request:ty => $response:ty;)+) => {
        #[tonic::async_trait]
        impl Controller for ControllerService {
            async fn controller_get_capabilities(
                &self,
                _: Request<ControllerGetCapabilitiesRequest>,
            ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
                let capability = |of: Rpc| ControllerServiceCapability {
                    r#type: Some(Type::Rpc(controller_service_capability::Rpc { r#type: of.into() })),
                };
                // Both calls come from the resizer, which does not select the driver by node.
                let is_offered =
                    |of: &Rpc| !(self.expand_on_node && matches!(of, Rpc::ExpandVolume | Rpc::ModifyVolume));
                let of_network = match self.context.attach {
                    AttachMode::Local => &[][..],
                    AttachMode::NvmeTcp => &NETWORK_CAPABILITIES,
                };
                let all = CAPABILITIES.iter().chain(of_network).copied();
                let capabilities = all.filter(is_offered).map(capability).collect();
                Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
            }

            $(async fn $call(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                let (context, request) = (self.context.clone(), request.into_inner());
                let object = String::new() $(+ &request.$field)?;
                run(stringify!($call), object, async move { context.$method(request).await }).await
            })+
        }
    };
}

calls! {
    controller_publish_volume = publish_volume(volume_id),
        ControllerPublishVolumeRequest => ControllerPublishVolumeResponse;
    controller_unpublish_volume = unpublish_volume(volume_id),
        ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse;
    create_volume = create_volume(name), CreateVolumeRequest => CreateVolumeResponse;
    delete_volume = delete_volume(volume_id), DeleteVolumeRequest => DeleteVolumeResponse;
    validate_volume_capabilities = validate(volume_id),
        ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse;
    list_volumes = list_volumes(), ListVolumesRequest => ListVolumesResponse;
    get_capacity = get_capacity(), GetCapacityRequest => GetCapacityResponse;
    create_snapshot = create_snapshot(name), CreateSnapshotRequest => CreateSnapshotResponse;
    delete_snapshot = delete_snapshot(snapshot_id), DeleteSnapshotRequest => DeleteSnapshotResponse;
    list_snapshots = list_snapshots(source_volume_id), ListSnapshotsRequest => ListSnapshotsResponse;
    get_snapshot = get_snapshot(snapshot_id), GetSnapshotRequest => GetSnapshotResponse;
    controller_expand_volume = expand_volume(volume_id),
        ControllerExpandVolumeRequest => ControllerExpandVolumeResponse;
    controller_get_volume = get_volume(volume_id), ControllerGetVolumeRequest => ControllerGetVolumeResponse;
    controller_modify_volume = modify_volume(volume_id),
        ControllerModifyVolumeRequest => ControllerModifyVolumeResponse;
}
