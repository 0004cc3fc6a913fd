//! NVMe/TCP as a frontend: a server on each reactor, listeners on the first one, and the target.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use reactor::{Handle, Reactor};

use super::discovery_listeners::{DiscoveryListeners, NvmeDiscovery};
use super::host_secrets::HostSecrets;
use super::limits::{NAMESPACES, NvmeLimits};
use super::server::NvmeServer;
use super::shared::ServerShared;
use super::target::{DISCOVERY_NAME, NamespaceRefusal, NvmeNamespace, NvmeTarget, Subsystem};
use super::wire::is_name;
use crate::context::{call_object, check_no_queues};
use crate::listen::ListenLabel;
use crate::reservation::ReservationRegistry;
use crate::transport::{Servers, TcpListeners, acquire_all, close_listeners, network_uris, release_all};
use crate::{
    ControlFuture, ExportConfig, ExportError, ExportErrorKind, ExportName, ExportStatus, Frontend,
    FrontendContext, NetworkConfig, RunningExport, StopMode, VolumeSource,
};

/// The addresses of exports, for errors and logs.
const LABEL: ListenLabel = ListenLabel { protocol: "NVMe/TCP", setting: "--listen" };

/// The addresses of NVMe/TCP, and the limits of its servers.
#[derive(Clone)]
pub struct NvmeConfig {
    /// The TCP addresses of exports that name none.
    pub listen: Vec<SocketAddr>,
    /// The addresses of the discovery service, in addition to those of the exports.
    pub discovery: NvmeDiscovery,
    /// Limits of the server of each reactor.
    pub limits: NvmeLimits,
    /// The reservations of all volumes.
    pub reservations: Arc<ReservationRegistry>,
}

/// NVMe/TCP on all reactors.
pub struct NvmeFrontend<S: VolumeSource> {
    servers: Servers<NvmeServer<S>>,
    listeners: Handle<TcpListeners<NvmeServer<S>>>,
    discovery: Arc<DiscoveryListeners<NvmeServer<S>>>,
    target: Arc<NvmeTarget<S>>,
    listen: Vec<SocketAddr>,
    reservations: Arc<ReservationRegistry>,
}

fn invalid(message: String) -> ExportError {
    ExportError::new(ExportErrorKind::Invalid, message)
}

impl<S: VolumeSource> NvmeFrontend<S> {
    /// Starts the servers, and the discovery service at its own addresses. Other addresses are
    /// listened on once exports use them.
    ///
    /// # Errors
    /// When a reactor has shut down, or an address of the discovery service cannot be listened on.
    pub async fn start(config: NvmeConfig, context: &FrontendContext) -> Result<Self, ExportError> {
        let target: Arc<NvmeTarget<S>> = Arc::default();
        let mut servers = Vec::new();
        for remote in context.reactors.all() {
            let (target, limits) = (target.clone(), config.limits.clone());
            let reservations = config.reservations.clone();
            let start = move || async move {
                let shared = ServerShared::new(target, reservations, limits);
                Handle::register(&Reactor::current(), NvmeServer::new(shared))
            };
            servers.push(remote.call(start).await?);
        }
        let servers: Servers<NvmeServer<S>> = servers.into();
        let Some(first) = context.reactors.all().first() else {
            unreachable!("a set has at least one reactor");
        };
        let platform = context.reactors.platform_of_thread();
        let listeners = TcpListeners::register(first, servers.clone(), platform, LABEL).await?;
        let discovery = DiscoveryListeners::start(config.discovery, &listeners).await?;
        let NvmeConfig { listen, reservations, .. } = config;
        Ok(Self { servers, listeners, discovery, target, listen, reservations })
    }

    /// The addresses of an export.
    fn addresses<'a>(&'a self, network: &'a NetworkConfig) -> &'a [SocketAddr] {
        if network.listen.is_empty() { &self.listen } else { &network.listen }
    }
}

/// The name of a subsystem for one volume, derived from the identity of the volume.
fn default_name(identity: [u8; 16]) -> String {
    let digits: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
    let groups = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
    let uuid: Vec<&str> =
        groups.iter().map(|(from, to)| digits.get(*from..*to).unwrap_or_default()).collect();
    format!("nqn.2014-08.org.nvmexpress:uuid:{}", uuid.join("-"))
}

fn other_secrets(subsystem: &str) -> ExportError {
    invalid(format!("another export of subsystem {subsystem} has other secrets for the same hosts"))
        .hint("give the same secrets, name other hosts with --host, or use another subsystem")
}

fn other_tls_key(subsystem: &str) -> ExportError {
    let message = format!("another export of subsystem {subsystem} has another TLS key for the same hosts");
    invalid(format!("{message}, or none"))
        .hint("give the same --tls-key, name other hosts with --host, or use another subsystem")
}

/// The URIs of a namespace's subsystem.
fn uris(addresses: &[SocketAddr], target: Option<&str>) -> Vec<String> {
    target.map(|target| network_uris("nvme+tcp", addresses, target)).unwrap_or_default()
}

impl<S: VolumeSource> Frontend<S> for NvmeFrontend<S> {
    fn name(&self) -> &'static str {
        "nvme-tcp"
    }

    fn complete(&self, config: ExportConfig, source: &S) -> ExportConfig {
        let ExportConfig { mut network, .. } = config;
        network.target.get_or_insert_with(|| default_name(source.identity()));
        network.unit.get_or_insert(1);
        ExportConfig { network, ..config }
    }

    fn check(&self, name: &ExportName, config: &ExportConfig) -> Result<(), ExportError> {
        check_no_queues(config)?;
        let network = &config.network;
        let names = network.target.iter().chain(&network.hosts);
        if let Some(wrong) = names.into_iter().find(|name| !is_name(name)) {
            return Err(invalid(format!("'{wrong}' is not an NVMe qualified name (NQN)"))
                .hint("a name has the form nqn.2014-08.org.example:text, with up to 223 characters"));
        }
        if network.chap.is_some() {
            return Err(invalid("NVMe/TCP has no CHAP accounts; they belong to iSCSI".into()));
        }
        if let Some(secrets) = &network.dhchap {
            secrets.check()?;
        }
        if let Some(key) = &network.tls_key {
            key.check(name)?;
        }
        if network.target.as_deref() == Some(DISCOVERY_NAME) {
            return Err(invalid(format!("'{DISCOVERY_NAME}' is the name of the discovery service")));
        }
        if let Some(unit) = network.unit.filter(|unit| !(1..=NAMESPACES).contains(unit)) {
            return Err(invalid(format!("a namespace id is 1 to {NAMESPACES}, not {unit}")));
        }
        if self.addresses(network).is_empty() {
            return Err(invalid("the export has no address for NVMe/TCP".into()).hint(
                "give one with --listen ADDRESS:4420, or set nvme.listen in the daemon's configuration",
            ));
        }
        Ok(())
    }

    fn listeners(&self, _: &ExportName, config: &ExportConfig) -> Vec<String> {
        uris(self.addresses(&config.network), config.network.target.as_deref())
    }

    fn reserve<'a>(&'a self, _: &'a [ExportName]) -> ControlFuture<'a, ()> {
        // Hosts that connect to a subsystem that is not served yet are asked to retry.
        Box::pin(std::future::ready(()))
    }

    fn start<'a>(
        &'a self,
        name: &'a ExportName,
        config: &'a ExportConfig,
        source: Arc<S>,
    ) -> ControlFuture<'a, Result<Arc<dyn RunningExport>, ExportError>> {
        Box::pin(async move {
            let config = self.complete(config.clone(), &source);
            self.check(name, &config)?;
            let (read_only, network) = (config.read_only, config.network);
            let (Some(subsystem), Some(unit)) = (network.target.clone(), network.unit) else {
                unreachable!("a complete configuration names its namespace");
            };
            let taken = || {
                let message = format!("subsystem {subsystem} has a namespace {unit} already");
                ExportError::new(ExportErrorKind::Exists, message).hint("give another one with --namespace N")
            };
            if self.target.has(&subsystem, unit) {
                return Err(taken());
            }
            let addresses = acquire_all(&self.listeners, self.addresses(&network), LABEL).await?;
            let leases: Arc<AtomicU64> = Arc::default();
            let namespace = NvmeNamespace {
                id: unit,
                identity: source.identity(),
                reservations: self.reservations.of_volume(source.identity()),
                source,
                read_only,
                hosts: network.hosts.clone(),
                secrets: HostSecrets { dhchap: network.dhchap.clone(), tls_key: network.tls_key.clone() },
                listen: addresses.clone(),
                leases: leases.clone(),
            };
            let served = match self.target.add(&subsystem, namespace) {
                Ok(served) => served,
                Err(refusal) => {
                    release_all(&self.listeners, &addresses).await;
                    return Err(match refusal {
                        NamespaceRefusal::Taken => taken(),
                        NamespaceRefusal::Secrets => other_secrets(&subsystem),
                        NamespaceRefusal::TlsKey => other_tls_key(&subsystem),
                    });
                }
            };
            let export = NvmeExport {
                target: self.target.clone(),
                subsystem: served,
                unit,
                leases,
                addresses,
                servers: self.servers.clone(),
                listeners: self.listeners.clone(),
                discovery: self.discovery.clone(),
            };
            self.discovery.acquire(&export.addresses).await;
            Ok(Arc::new(export) as Arc<dyn RunningExport>)
        })
    }

    fn release<'a>(&'a self, _: &'a ExportName) -> ControlFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn shut_down(&self) -> ControlFuture<'_, ()> {
        Box::pin(async move {
            self.discovery.close().await;
            close_listeners(&self.listeners).await;
            for server in &*self.servers {
                let shut = |server: Rc<NvmeServer<S>>| async move { server.shut_down().await };
                if let Ok(left @ 1..) = call_object(server, shut).await {
                    tracing::warn!(left, "NVMe/TCP connections were closed with requests in flight");
                }
            }
        })
    }
}

/// A volume that is served over NVMe/TCP.
struct NvmeExport<S: VolumeSource> {
    target: Arc<NvmeTarget<S>>,
    subsystem: Arc<Subsystem<S>>,
    unit: u32,
    leases: Arc<AtomicU64>,
    addresses: Vec<SocketAddr>,
    servers: Servers<NvmeServer<S>>,
    listeners: Handle<TcpListeners<NvmeServer<S>>>,
    discovery: Arc<DiscoveryListeners<NvmeServer<S>>>,
}

impl<S: VolumeSource> RunningExport for NvmeExport<S> {
    fn listeners(&self) -> Vec<String> {
        uris(&self.addresses, Some(&self.subsystem.name))
    }

    fn status(&self) -> ExportStatus {
        ExportStatus { connections: self.subsystem.controller_count(), users: Vec::new() }
    }

    fn resize(&self) -> ControlFuture<'_, ()> {
        self.subsystem.announce(self.unit);
        Box::pin(std::future::ready(()))
    }

    fn stop(&self, mode: StopMode) -> ControlFuture<'_, Result<(), ExportError>> {
        Box::pin(async move {
            if mode == StopMode::Handover {
                // Connections end with the servers, which finish their requests.
                return Ok(());
            }
            let is_served = self.subsystem.namespace_is(self.unit, &self.leases);
            if !is_served {
                return Ok(());
            }
            self.target.remove(&self.subsystem.name, self.unit);
            for server in &*self.servers {
                let leases = self.leases.clone();
                let revoke = |server: Rc<NvmeServer<S>>| async move {
                    server.shared.leases.revoke(&leases).await;
                };
                // A reactor that has shut down has no hosts.
                let _ = call_object(server, revoke).await;
            }
            self.discovery.release(&self.addresses).await;
            release_all(&self.listeners, &self.addresses).await;
            Ok(())
        })
    }
}
