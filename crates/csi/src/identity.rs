//! The Identity service: name, version, capabilities and readiness of the driver.

use api::client::Client;
use tonic::{Request, Response, Status};

use crate::options::AttachMode;
use crate::proto::csi::identity_server::Identity;
use crate::proto::csi::plugin_capability::service::Type as ServiceType;
use crate::proto::csi::plugin_capability::volume_expansion::Type as ExpansionType;
use crate::proto::csi::plugin_capability::{Service, Type, VolumeExpansion};
use crate::proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};

/// The service.
#[derive(Clone, Debug)]
pub(crate) struct IdentityService {
    pub(crate) driver_name: String,
    pub(crate) controller: bool,
    pub(crate) attach: AttachMode,
    pub(crate) client: Client,
}

fn service(of: ServiceType) -> PluginCapability {
    PluginCapability { r#type: Some(Type::Service(Service { r#type: of.into() })) }
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.driver_name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let expansion = Type::VolumeExpansion(VolumeExpansion { r#type: ExpansionType::Online.into() });
        let mut capabilities = vec![PluginCapability { r#type: Some(expansion) }];
        // Every node can use a network disk.
        if self.attach == AttachMode::Local {
            capabilities.push(service(ServiceType::VolumeAccessibilityConstraints));
        }
        if self.controller {
            capabilities.push(service(ServiceType::ControllerService));
            capabilities.push(service(ServiceType::GroupControllerService));
            capabilities.push(service(ServiceType::SnapshotMetadataService));
        }
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// Returns whether the daemon has opened its pools. A daemon that cannot be reached is not
    /// ready; a restart of the driver would not help.
    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        let ready = self.client.get_daemon().await.is_ok_and(|daemon| daemon.ready);
        Ok(Response::new(ProbeResponse { ready: Some(ready) }))
    }
}
