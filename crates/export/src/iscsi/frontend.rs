//! iSCSI as a frontend: a server on each reactor, listeners on the first one, and the targets.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use reactor::{Handle, Reactor};

use super::chap::{CHAP_SECRET_MIN, ChapAccount};
use super::limits::{IscsiLimits, UNITS};
use super::login::is_initiator;
use super::scsi::Sense;
use super::server::IscsiServer;
use super::shared::IscsiShared;
use super::target::{IscsiTarget, IscsiTargets, IscsiUnit, UnitOptions};
use crate::context::{call_object, check_no_queues};
use crate::listen::ListenLabel;
use crate::reservation::ReservationRegistry;
use crate::transport::{Servers, TcpListeners, acquire_all, close_listeners, network_uris, release_all};
use crate::{
    ControlFuture, ExportConfig, ExportError, ExportErrorKind, ExportName, ExportStatus, Frontend,
    FrontendContext, NetworkConfig, RunningExport, StopMode, VolumeSource,
};

/// The addresses of exports, for errors and logs.
const LABEL: ListenLabel = ListenLabel { protocol: "iSCSI", setting: "--listen" };

/// The addresses of iSCSI, and the limits of its servers.
#[derive(Clone)]
pub struct IscsiConfig {
    /// The TCP addresses of exports that name none.
    pub listen: Vec<SocketAddr>,
    /// Limits of the server of each reactor.
    pub limits: IscsiLimits,
    /// The reservations of all volumes.
    pub reservations: Arc<ReservationRegistry>,
}

/// iSCSI on all reactors.
pub struct IscsiFrontend<S: VolumeSource> {
    servers: Servers<IscsiServer<S>>,
    listeners: Handle<TcpListeners<IscsiServer<S>>>,
    targets: Arc<IscsiTargets<S>>,
    listen: Vec<SocketAddr>,
    reservations: Arc<ReservationRegistry>,
}

fn invalid(message: String) -> ExportError {
    ExportError::new(ExportErrorKind::Invalid, message)
}

impl<S: VolumeSource> IscsiFrontend<S> {
    /// Starts the servers. Addresses are listened on once exports use them.
    ///
    /// # Errors
    /// When a reactor has shut down.
    pub async fn start(config: IscsiConfig, context: &FrontendContext) -> Result<Self, ExportError> {
        let IscsiConfig { listen, limits, reservations } = config;
        let targets: Arc<IscsiTargets<S>> = Arc::default();
        let mut servers = Vec::new();
        for remote in context.reactors.all() {
            let (targets, reservations, limits) = (targets.clone(), reservations.clone(), limits.clone());
            let start = move || async move {
                let shared = IscsiShared::new(targets, reservations, limits);
                Handle::register(&Reactor::current(), IscsiServer::new(shared))
            };
            servers.push(remote.call(start).await?);
        }
        let servers: Servers<IscsiServer<S>> = servers.into();
        let Some(first) = context.reactors.all().first() else {
            unreachable!("a set has at least one reactor");
        };
        let platform = context.reactors.platform_of_thread();
        let listeners = TcpListeners::register(first, servers.clone(), platform, LABEL).await?;
        Ok(Self { servers, listeners, targets, listen, reservations })
    }

    /// The addresses of an export.
    fn addresses<'a>(&'a self, network: &'a NetworkConfig) -> &'a [SocketAddr] {
        if network.listen.is_empty() { &self.listen } else { &network.listen }
    }
}

/// The name of a target for one volume, derived from the identity of the volume.
fn default_name(identity: [u8; 16]) -> String {
    let digits: String = identity.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("iqn.2026-11.gabion:{digits}")
}

/// The URIs of a unit.
fn uris(addresses: &[SocketAddr], network: &NetworkConfig) -> Vec<String> {
    let Some(target) = &network.target else { return Vec::new() };
    network_uris("iscsi", addresses, &format!("{target}/{}", network.unit.unwrap_or(0)))
}

fn check_account(account: &ChapAccount) -> Result<(), ExportError> {
    let secrets = [Some(&account.secret), account.target.as_ref().map(|(_, secret)| secret)];
    let users = [Some(&account.user), account.target.as_ref().map(|(user, _)| user)];
    if users.iter().flatten().any(|user| user.is_empty() || user.len() > 255 || user.contains('\0')) {
        return Err(invalid("a CHAP user name has 1 to 255 bytes".into()));
    }
    for secret in secrets.into_iter().flatten() {
        if !(CHAP_SECRET_MIN..=255).contains(&secret.len()) || secret.contains('\0') {
            let message = format!("a CHAP secret of {} bytes is not accepted", secret.len());
            return Err(invalid(message).hint(format!("use {CHAP_SECRET_MIN} to 255 bytes")));
        }
    }
    if account.target.as_ref().is_some_and(|(_, secret)| *secret == account.secret) {
        let message = "the target and the initiator have the same CHAP secret";
        return Err(invalid(message.into()).hint("use another secret for each direction"));
    }
    Ok(())
}

impl<S: VolumeSource> Frontend<S> for IscsiFrontend<S> {
    fn name(&self) -> &'static str {
        "iscsi"
    }

    fn complete(&self, config: ExportConfig, source: &S) -> ExportConfig {
        let ExportConfig { mut network, .. } = config;
        network.target.get_or_insert_with(|| default_name(source.identity()));
        network.unit.get_or_insert(0);
        ExportConfig { network, ..config }
    }

    fn check(&self, _: &ExportName, config: &ExportConfig) -> Result<(), ExportError> {
        check_no_queues(config)?;
        let network = &config.network;
        let names = network.target.iter().chain(&network.hosts);
        if let Some(name) = names.into_iter().find(|name| !is_initiator(name)) {
            return Err(invalid(format!("'{name}' is not an iSCSI name"))
                .hint("a name has the form iqn.2026-11.org.example:text, with up to 223 characters"));
        }
        if let Some(unit) = network.unit.filter(|unit| *unit > UNITS.into()) {
            return Err(invalid(format!("a logical unit number is 0 to {UNITS}, not {unit}")));
        }
        if network.dhchap.is_some() {
            return Err(invalid("iSCSI has no secrets for DH-HMAC-CHAP; they belong to NVMe/TCP".into()));
        }
        if network.tls_key.is_some() {
            return Err(invalid("iSCSI has no TLS keys; they belong to NVMe/TCP".into()));
        }
        if let Some(account) = &network.chap {
            check_account(account)?;
        }
        if self.addresses(network).is_empty() {
            return Err(invalid("the export has no address for iSCSI".into()).hint(
                "give one with --listen ADDRESS:3260, or set iscsi.listen in the daemon's configuration",
            ));
        }
        Ok(())
    }

    fn listeners(&self, _: &ExportName, config: &ExportConfig) -> Vec<String> {
        uris(self.addresses(&config.network), &config.network)
    }

    fn reserve<'a>(&'a self, _: &'a [ExportName]) -> ControlFuture<'a, ()> {
        // Initiators that log in to a target that is not served yet retry.
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
            let (Some(target), Some(number)) = (network.target.clone(), network.unit) else {
                unreachable!("a complete configuration names its unit");
            };
            let number = u16::try_from(number).unwrap_or(UNITS);
            let taken = || {
                let message = format!("target {target} has a logical unit {number} already");
                ExportError::new(ExportErrorKind::Exists, message).hint("give another one with --lun N")
            };
            if self.targets.has(&target, number) {
                return Err(taken());
            }
            let addresses = acquire_all(&self.listeners, self.addresses(&network), LABEL).await?;
            let leases: Arc<AtomicU64> = Arc::default();
            let identity = source.identity();
            let unit = IscsiUnit::new(UnitOptions {
                number,
                source,
                read_only,
                identity,
                hosts: network.hosts.clone(),
                account: network.chap.clone(),
                listen: addresses.clone(),
                leases: leases.clone(),
                reservations: self.reservations.of_volume(identity),
            });
            let Some(served) = self.targets.add(&target, unit) else {
                release_all(&self.listeners, &addresses).await;
                return Err(taken());
            };
            let export = IscsiExport {
                targets: self.targets.clone(),
                target: served,
                network,
                number,
                leases,
                addresses,
                servers: self.servers.clone(),
                listeners: self.listeners.clone(),
            };
            Ok(Arc::new(export) as Arc<dyn RunningExport>)
        })
    }

    fn release<'a>(&'a self, _: &'a ExportName) -> ControlFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn shut_down(&self) -> ControlFuture<'_, ()> {
        Box::pin(async move {
            close_listeners(&self.listeners).await;
            for server in &*self.servers {
                let shut = |server: Rc<IscsiServer<S>>| async move { server.shut_down().await };
                if let Ok(left @ 1..) = call_object(server, shut).await {
                    tracing::warn!(left, "iSCSI connections were closed with requests in flight");
                }
            }
        })
    }
}

/// A volume that is served over iSCSI.
struct IscsiExport<S: VolumeSource> {
    targets: Arc<IscsiTargets<S>>,
    target: Arc<IscsiTarget<S>>,
    network: NetworkConfig,
    number: u16,
    leases: Arc<AtomicU64>,
    addresses: Vec<SocketAddr>,
    servers: Servers<IscsiServer<S>>,
    listeners: Handle<TcpListeners<IscsiServer<S>>>,
}

impl<S: VolumeSource> RunningExport for IscsiExport<S> {
    fn listeners(&self) -> Vec<String> {
        uris(&self.addresses, &self.network)
    }

    fn status(&self) -> ExportStatus {
        ExportStatus { connections: self.target.sessions().len() as u64, users: Vec::new() }
    }

    fn resize(&self) -> ControlFuture<'_, ()> {
        let units = self.target.all_units();
        if let Some(unit) = units.iter().find(|unit| unit.number == self.number) {
            unit.raise(Sense::CAPACITY_CHANGED, None);
        }
        Box::pin(std::future::ready(()))
    }

    fn stop(&self, mode: StopMode) -> ControlFuture<'_, Result<(), ExportError>> {
        Box::pin(async move {
            if mode == StopMode::Handover {
                // Connections end with the servers, which finish their requests.
                return Ok(());
            }
            if !self.target.unit_is(self.number, &self.leases) {
                return Ok(());
            }
            self.targets.remove(&self.target.name, self.number);
            for server in &*self.servers {
                let leases = self.leases.clone();
                let revoke = |server: Rc<IscsiServer<S>>| async move {
                    server.shared.leases.revoke(&leases).await;
                };
                // A reactor that has shut down has no initiators.
                let _ = call_object(server, revoke).await;
            }
            release_all(&self.listeners, &self.addresses).await;
            Ok(())
        })
    }
}
