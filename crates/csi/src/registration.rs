//! Registration with the kubelet, by its plugin registration API (version 1).

use std::path::PathBuf;

use tonic::{Request, Response, Status};

use crate::options::Registration as Options;
use crate::proto::pluginregistration::registration_server::Registration;
use crate::proto::pluginregistration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};

/// The service, on a socket of its own.
#[derive(Clone, Debug)]
pub(crate) struct RegistrationService {
    pub(crate) driver_name: String,
    pub(crate) kubelet_endpoint: PathBuf,
}

/// Returns the path of the socket by which the kubelet finds a driver.
///
/// The kubelet sends the path of this socket, with percent signs for its slashes, as the authority
/// of its calls. HTTP permits percent signs only before an `@`, and the server refuses an invalid
/// authority, so that the name of the socket contains one.
pub(crate) fn socket(options: &Options, driver_name: &str) -> PathBuf {
    options.directory.join(format!("{driver_name}@registration.sock"))
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: self.driver_name.clone(),
            endpoint: self.kubelet_endpoint.to_string_lossy().into_owned(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = request.into_inner();
        if plugin_registered {
            tracing::info!(driver = self.driver_name, "registered with the kubelet");
        } else {
            tracing::error!(driver = self.driver_name, error, "the kubelet refused the registration");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use tonic::codegen::http::uri::Authority;

    use super::*;

    #[test]
    fn the_path_of_the_socket_is_an_authority_as_the_kubelet_sends_it() {
        let directory = PathBuf::from("/var/lib/kubelet/plugins_registry");
        let kubelet_endpoint = PathBuf::from("/var/lib/kubelet/plugins/csi.gabion.io/csi.sock");
        let path = socket(&Options { directory, kubelet_endpoint }, "csi.gabion.io");
        let encoded = |path: &str| path.replace('/', "%2F").parse::<Authority>();
        assert_eq!(encoded(path.to_str().unwrap()).unwrap().host(), "registration.sock");
        assert!(encoded("/var/lib/kubelet/plugins_registry/csi.gabion.io-reg.sock").is_err());
    }
}
