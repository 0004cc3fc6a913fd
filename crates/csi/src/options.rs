//! Options of the driver.

use std::path::PathBuf;
use std::str::FromStr;

use api::client::Client;

/// Default name of the driver.
pub const DEFAULT_DRIVER_NAME: &str = "csi.gabion.io";

/// The way in which volumes reach the nodes of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// As local devices: each node has a daemon, and uses the volumes of its own pools.
    Local,
    /// As NVMe/TCP disks: all nodes use the volumes of one daemon.
    NvmeTcp,
}

/// Options of a driver process.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Socket on which the driver serves.
    pub endpoint: Endpoint,
    /// Serve the Controller service.
    pub controller: bool,
    /// Serve the Node service.
    pub node: bool,
    /// Leave the growth of volumes to the Node service: any driver of the cluster may get the call
    /// of the Controller service, but only that of the volume's node reaches its daemon.
    pub expand_on_node: bool,
    /// Name of this node, the value of the topology key.
    pub node_id: String,
    /// Name of the driver, in the form of a domain.
    pub driver_name: String,
    /// Most volumes that the cluster may place on this node.
    pub max_volumes: u32,
    /// Registration with the kubelet; `None` to leave it to another program.
    pub registration: Option<Registration>,
    /// The way in which volumes reach the nodes.
    pub attach: AttachMode,
    /// Client of the daemon.
    pub client: Client,
}

/// Registration with the kubelet.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Directory in which the kubelet looks for sockets of plugins.
    pub directory: PathBuf,
    /// Path of the endpoint as the kubelet sees it.
    pub kubelet_endpoint: PathBuf,
}

/// The Unix socket of the driver, written as `unix:///csi/csi.sock` or as a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(pub PathBuf);

/// Reason why a text is not an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write the absolute path of a Unix socket: unix:///csi/csi.sock")]
pub struct EndpointError;

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
        if path.starts_with('/') { Ok(Self(path.into())) } else { Err(EndpointError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_absolute_unix_sockets() {
        for text in ["unix:///csi/csi.sock", "unix:/csi/csi.sock", "/csi/csi.sock"] {
            assert_eq!(text.parse(), Ok(Endpoint("/csi/csi.sock".into())), "{text}");
        }
        for text in ["", "tcp://1.2.3.4:5", "unix://csi.sock", "csi.sock"] {
            assert_eq!(text.parse::<Endpoint>(), Err(EndpointError), "{text}");
        }
    }
}
