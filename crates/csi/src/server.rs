//! The process of the driver: its sockets and services, until it is stopped.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};

use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::controller::{ControllerContext, ControllerService, GroupService, MetadataService};
use crate::daemon::Daemon;
use crate::host::nbd::NbdHost;
use crate::host::nvme::NvmeHost;
use crate::identity::IdentityService;
use crate::listener::bind;
use crate::locks::VolumeLocks;
use crate::node::{NodeContext, NodeService};
use crate::options::DriverOptions;
use crate::proto::csi::controller_server::ControllerServer;
use crate::proto::csi::group_controller_server::GroupControllerServer;
use crate::proto::csi::identity_server::IdentityServer;
use crate::proto::csi::node_server::NodeServer;
use crate::proto::csi::snapshot_metadata_server::SnapshotMetadataServer;
use crate::proto::pluginregistration::registration_server::RegistrationServer;
use crate::registration::{RegistrationService, socket};

/// Reason why the driver cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket cannot be bound.
    #[error("cannot listen on {}: {error}", path.display())]
    Bind {
        /// Path of the socket.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// A server failed.
    #[error("the gRPC server failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves until `stop` ends, then completes the calls in progress.
///
/// # Errors
/// If a socket cannot be bound, or a server fails.
pub async fn serve(options: DriverOptions, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
    let daemon = Daemon { client: options.client.clone() };
    let identity = IdentityService {
        driver_name: options.driver_name.clone(),
        controller: options.controller,
        attach: options.attach,
        client: options.client.clone(),
    };
    let context = options.controller.then(|| {
        let (daemon, node_id) = (daemon.clone(), options.node_id.clone());
        ControllerContext { daemon, locks: VolumeLocks::default(), node_id, attach: options.attach }
    });
    let expand_on_node = options.expand_on_node;
    let groups = context.clone().map(|context| GroupControllerServer::new(GroupService(context)));
    let metadata = context.clone().map(|context| SnapshotMetadataServer::new(MetadataService(context)));
    let controller =
        context.map(|context| ControllerServer::new(ControllerService { context, expand_on_node }));
    let node = options.node.then(|| NodeContext {
        daemon,
        locks: VolumeLocks::default(),
        node_id: options.node_id.clone(),
        max_volumes: options.max_volumes,
        attach: options.attach,
        nvme: NvmeHost::default(),
        nbd: NbdHost::default(),
    });
    let reconnects = node.clone().map(|context| tokio::spawn(context.keep_connected()));
    let node = node.map(|context| NodeServer::new(NodeService(context)));
    let incoming = listen(&options.endpoint.0).await?;
    let (stopped, stopping) = tokio::sync::watch::channel(false);
    let registration = register(&options, stopping.clone()).await?;
    let services = Server::builder()
        .add_service(IdentityServer::new(identity))
        .add_optional_service(controller)
        .add_optional_service(groups)
        .add_optional_service(metadata)
        .add_optional_service(node)
        .serve_with_incoming_shutdown(incoming, ended(stopping));
    tracing::info!(endpoint = %options.endpoint.0.display(), driver = options.driver_name, "serving");
    let stop = async {
        stop.await;
        let _ = stopped.send(true);
        std::future::pending::<()>().await;
    };
    let served = tokio::select! {
        served = services => served,
        () = stop => Ok(()),
    };
    // The kubelet must not find the socket of a driver that does not run.
    registration.abort();
    if let Some(reconnects) = reconnects {
        reconnects.abort();
    }
    for path in sockets(&options) {
        let _ = std::fs::remove_file(path);
    }
    Ok(served?)
}

fn sockets(options: &DriverOptions) -> Vec<PathBuf> {
    let registration = options.registration.as_ref().map(|at| socket(at, &options.driver_name));
    registration.into_iter().chain([options.endpoint.0.clone()]).collect()
}

async fn listen(path: &Path) -> Result<UnixListenerStream, ServeError> {
    let bound = bind(path).await.map_err(|error| ServeError::Bind { path: path.to_owned(), error })?;
    Ok(UnixListenerStream::new(bound))
}

/// Serves the registration with the kubelet, if the options ask for it.
async fn register(
    options: &DriverOptions,
    stopping: tokio::sync::watch::Receiver<bool>,
) -> Result<tokio::task::JoinHandle<()>, ServeError> {
    let Some(registration) = &options.registration else {
        return Ok(tokio::spawn(std::future::ready(())));
    };
    let incoming = listen(&socket(registration, &options.driver_name)).await?;
    let service = RegistrationService {
        driver_name: options.driver_name.clone(),
        kubelet_endpoint: registration.kubelet_endpoint.clone(),
    };
    let server = Server::builder()
        .add_service(RegistrationServer::new(service))
        .serve_with_incoming_shutdown(incoming, ended(stopping));
    Ok(tokio::spawn(async move {
        if let Err(error) = server.await {
            tracing::error!(%error, "the registration with the kubelet failed");
        }
    }))
}

/// Waits until the driver stops.
async fn ended(mut stopping: tokio::sync::watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopped| *stopped).await;
}
