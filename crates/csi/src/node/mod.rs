//! The Node service: volumes of the daemon for the containers of this node.

mod attach;
mod context;
mod devices;
mod format;
mod publish;
mod reconnect;
mod stage;
mod volume;

use std::collections::HashMap;

use tonic::{Request, Response, Status};

use crate::calls::run;
use crate::controller::TOPOLOGY_KEY;
use crate::options::AttachMode;
use crate::proto::csi::node_server::Node;
use crate::proto::csi::node_service_capability::rpc::Type as Rpc;
use crate::proto::csi::node_service_capability::{self, Type};
use crate::proto::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability,
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    NodeUnstageVolumeRequest, NodeUnstageVolumeResponse, Topology,
};
pub(crate) use context::NodeContext;

/// Calls that the driver offers beyond the required ones.
const CAPABILITIES: [Rpc; 5] = [
    Rpc::StageUnstageVolume,
    Rpc::GetVolumeStats,
    Rpc::ExpandVolume,
    Rpc::VolumeCondition,
    Rpc::SingleNodeMultiWriter,
];

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct NodeService(pub(crate) NodeContext);

/// Implements the calls by methods of the context.
macro_rules! calls {
    ($($call:ident = $method:ident, $request:ty => $response:ty;)+) => {
        #[tonic::async_trait]
        impl Node for NodeService {
            async fn node_get_capabilities(
                &self,
                _: Request<NodeGetCapabilitiesRequest>,
            ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
                let capability = |of: Rpc| NodeServiceCapability {
                    r#type: Some(Type::Rpc(node_service_capability::Rpc { r#type: of.into() })),
                };
                let capabilities = CAPABILITIES.into_iter().map(capability).collect();
                Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
            }

            async fn node_get_info(
                &self,
                _: Request<NodeGetInfoRequest>,
            ) -> Result<Response<NodeGetInfoResponse>, Status> {
                let segments = HashMap::from([(TOPOLOGY_KEY.to_owned(), self.0.node_id.clone())]);
                let is_local = self.0.attach == AttachMode::Local;
                Ok(Response::new(NodeGetInfoResponse {
                    node_id: self.0.node_id.clone(),
                    max_volumes_per_node: self.0.max_volumes.into(),
                    accessible_topology: is_local.then_some(Topology { segments }),
                }))
            }

            $(async fn $call(&self, request: Request<$request>) -> Result<Response<$response>, Status> {
                let (context, request) = (self.0.clone(), request.into_inner());
                let object = request.volume_id.clone();
                run(stringify!($call), object, async move { context.$method(request).await }).await
            })+
        }
    };
}

calls! {
    node_stage_volume = stage, NodeStageVolumeRequest => NodeStageVolumeResponse;
    node_unstage_volume = unstage, NodeUnstageVolumeRequest => NodeUnstageVolumeResponse;
    node_publish_volume = publish, NodePublishVolumeRequest => NodePublishVolumeResponse;
    node_unpublish_volume = unpublish, NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse;
    node_get_volume_stats = stats, NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse;
    node_expand_volume = expand, NodeExpandVolumeRequest => NodeExpandVolumeResponse;
}
