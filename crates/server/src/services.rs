//! The parts of the daemon that the API handlers use.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::access::AccessControl;
use crate::buckets::Buckets;
use crate::certificate::CertificateStore;
use crate::cluster_statuses::ClusterStatuses;
use crate::consoles::Consoles;
use crate::exports::Exports;
use crate::gateways::Gateways;
use crate::host_objects::HostObjects;
use crate::image::ImageOperations;
use crate::live::LiveUpdates;
use crate::objects::ObjectServices;
use crate::operations::Operations;
use crate::pools::Pools;
use crate::reactors::Reactors;
use crate::volumes::Volumes;
use api::types;

/// The parts of the daemon that the API handlers use.
pub(crate) struct Services {
    pub(crate) pools: Arc<Pools>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) exports: Arc<Exports>,
    pub(crate) objects: Arc<ObjectServices>,
    pub(crate) gateways: Arc<Gateways>,
    pub(crate) buckets: Buckets,
    pub(crate) images: Arc<ImageOperations>,
    pub(crate) operations: Arc<Operations>,
    pub(crate) reactors: Arc<Reactors>,
    pub(crate) access: AccessControl,
    pub(crate) live: LiveUpdates,
    /// Objects of this host that the daemon does not own.
    pub(crate) host: Arc<dyn HostObjects>,
    pub(crate) consoles: Consoles,
    pub(crate) cluster_statuses: ClusterStatuses,
    /// The addresses for HTTPS, and their certificate.
    pub(crate) api_listen: Vec<SocketAddr>,
    pub(crate) certificate: Option<Arc<CertificateStore>>,
    /// The cores of the configuration.
    pub(crate) cores: Vec<u32>,
    /// Time of the daemon's start.
    pub(crate) started: Instant,
    /// True once every pool was opened or has failed to open.
    pub(crate) ready: AtomicBool,
}

impl Services {
    /// Returns the status of the daemon.
    pub(crate) fn describe(&self) -> types::DaemonStatus {
        let (nbd_socket, nbd_listen) = self.exports.addresses();
        types::DaemonStatus {
            version: crate::version(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            reactors: self.reactors.all().len() as u64,
            cores: self.cores.clone(),
            io: self.reactors.backend().to_string(),
            ready: self.ready.load(Ordering::Relaxed),
            nbd_socket,
            nbd_listen,
            api_listen: self.api_listen.iter().map(ToString::to_string).collect(),
            certificate_fingerprint: self.certificate.as_ref().map(|certificate| certificate.fingerprint()),
        }
    }
}
