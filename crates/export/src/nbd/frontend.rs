//! NBD as a frontend: a server on each reactor, and the sockets with a balancer of connections.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use reactor::{Handle, Listener, Platform, Reactor, Stream};

use super::limits::Limits;
use super::registry::{ExportRegistry, ReactorExports, ServedVolume};
use super::server::NbdServer;
use crate::context::{call_object, check_no_network, check_no_queues};
use crate::listen::{ListenLabel, accept_loop, listen_tcp, listen_unix};
use crate::{
    ControlFuture, ExportConfig, ExportError, ExportErrorKind, ExportName, ExportStatus, Frontend,
    FrontendContext, RunningExport, Stop, StopMode, VolumeSource,
};

/// The addresses of NBD, and the limits of its servers.
#[derive(Clone, Debug)]
pub struct NbdConfig {
    /// Unix socket.
    pub socket: Option<PathBuf>,
    /// TCP addresses.
    pub listen: Vec<SocketAddr>,
    /// Limits of the server of each reactor.
    pub limits: Limits,
}

/// NBD on all reactors.
pub struct NbdFrontend<S: VolumeSource> {
    servers: ServerHandles<S>,
    acceptor: Handle<Acceptor>,
    registry: Arc<ExportRegistry<S>>,
    addresses: NbdAddresses,
}

/// The servers, one for each reactor.
type ServerHandles<S> = Arc<[Handle<NbdServer<ReactorExports<S>>>]>;

/// The addresses at which NBD is served.
#[derive(Clone, Debug, Default)]
struct NbdAddresses {
    socket: Option<PathBuf>,
    tcp: Vec<SocketAddr>,
}

impl NbdAddresses {
    /// The URIs of an export.
    fn uris(&self, name: &ExportName) -> Vec<String> {
        let local = self.socket.as_ref().map(|path| format!("nbd+unix:///{name}?socket={}", path.display()));
        let network = self.tcp.iter().map(|address| {
            if address.ip().is_unspecified() {
                let host = rustix::system::uname();
                return format!("nbd://{}:{}/{name}", host.nodename().to_string_lossy(), address.port());
            }
            format!("nbd://{address}/{name}")
        });
        local.into_iter().chain(network).collect()
    }
}

/// The listeners, on one of the reactors.
struct Acceptor {
    stop: Stop,
}

impl<S: VolumeSource> NbdFrontend<S> {
    /// Starts the servers, and listens on the configured addresses.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub async fn start(config: NbdConfig, context: &FrontendContext) -> Result<Self, ExportError> {
        let registry: Arc<ExportRegistry<S>> = Arc::default();
        let mut servers = Vec::new();
        for remote in context.reactors.all() {
            let (registry, limits) = (registry.clone(), config.limits.clone());
            let start = move || async move {
                let server = NbdServer::new(ReactorExports::new(registry), limits);
                Handle::register(&Reactor::current(), server)
            };
            servers.push(remote.call(start).await?);
        }
        let servers: ServerHandles<S> = servers.into();
        let socket = config.socket.clone();
        let (acceptor, tcp) = listen(config, context, servers.clone()).await?;
        Ok(Self { servers, acceptor, registry, addresses: NbdAddresses { socket, tcp } })
    }

    /// The Unix socket and the TCP addresses at which NBD is served.
    pub fn addresses(&self) -> (Option<PathBuf>, Vec<SocketAddr>) {
        (self.addresses.socket.clone(), self.addresses.tcp.clone())
    }
}

/// Listens on the first reactor. Returns the bound TCP addresses.
async fn listen<S: VolumeSource>(
    config: NbdConfig,
    context: &FrontendContext,
    servers: ServerHandles<S>,
) -> Result<(Handle<Acceptor>, Vec<SocketAddr>), ExportError> {
    let Some(first) = context.reactors.all().first() else {
        unreachable!("a set has at least one reactor");
    };
    let (platform, access) = (context.reactors.platform_of_thread(), context.access);
    let start = move || async move {
        let mut listeners = Vec::new();
        if let Some(path) = &config.socket {
            let label = ListenLabel { protocol: "NBD", setting: "--nbd-socket" };
            listeners.push(listen_unix(&platform(), path, access, label).await?);
        }
        for address in &config.listen {
            let label = ListenLabel { protocol: "NBD", setting: "--nbd-listen" };
            listeners.push(listen_tcp(&platform(), *address, label).await?);
        }
        let addresses: Vec<SocketAddr> = listeners.iter().filter_map(Listener::local_address).collect();
        let stop = Stop::default();
        let balancer = Rc::new(ConnectionBalancer { servers, platform, next: Cell::new(0) });
        for listener in listeners {
            let (stop, balancer) = (stop.clone(), balancer.clone());
            let accept = async move {
                accept_loop(&listener, &stop, "NBD", async |stream| balancer.dispatch(stream)).await;
            };
            Reactor::current().spawn(accept).detach();
        }
        Ok::<_, ExportError>((Handle::register(&Reactor::current(), Rc::new(Acceptor { stop })), addresses))
    };
    first.call(start).await?
}

/// Distributes connections to the reactors in turn.
struct ConnectionBalancer<S: VolumeSource> {
    servers: ServerHandles<S>,
    platform: fn() -> Rc<Platform>,
    next: Cell<usize>,
}

impl<S: VolumeSource> ConnectionBalancer<S> {
    /// Gives a connection to the next reactor.
    fn dispatch(&self, stream: Stream) {
        let turn = self.next.replace(self.next.get().wrapping_add(1));
        let Some(handle) = self.servers.get(turn % self.servers.len().max(1)) else { return };
        if let Some(server) = handle.local() {
            server.serve(stream);
            return;
        }
        let (detached, remote_handle, platform) = (stream.detach(), handle.clone(), self.platform);
        let serve = move || {
            let Some(server) = remote_handle.local() else { return };
            match detached.attach(&platform()) {
                Ok(stream) => server.serve(stream),
                Err(error) => tracing::warn!(%error, "cannot move a connection to its reactor"),
            }
        };
        // A reactor that has shut down drops the connection, which closes it.
        let _ = handle.remote().post(serve);
    }
}

impl<S: VolumeSource> Frontend<S> for NbdFrontend<S> {
    fn name(&self) -> &'static str {
        "nbd"
    }

    fn check(&self, _: &ExportName, config: &ExportConfig) -> Result<(), ExportError> {
        check_no_queues(config)?;
        check_no_network(config)?;
        if self.addresses.socket.is_none() && self.addresses.tcp.is_empty() {
            let message = "the daemon does not listen for NBD";
            return Err(ExportError::new(ExportErrorKind::Invalid, message)
                .hint("set nbd.socket or nbd.listen in its configuration and restart it"));
        }
        Ok(())
    }

    fn listeners(&self, name: &ExportName, _: &ExportConfig) -> Vec<String> {
        self.addresses.uris(name)
    }

    fn reserve<'a>(&'a self, names: &'a [ExportName]) -> ControlFuture<'a, ()> {
        names.iter().cloned().for_each(|name| self.registry.reserve(name));
        Box::pin(std::future::ready(()))
    }

    fn start<'a>(
        &'a self,
        name: &'a ExportName,
        config: &'a ExportConfig,
        source: Arc<S>,
    ) -> ControlFuture<'a, Result<Arc<dyn RunningExport>, ExportError>> {
        Box::pin(async move {
            self.check(name, config)?;
            let read_only = config.read_only;
            let served = Arc::new(ServedVolume { source, read_only, connections: Arc::default() });
            self.registry.serve(name.clone(), served.clone());
            let export = NbdExport {
                name: name.clone(),
                served,
                servers: self.servers.clone(),
                registry: self.registry.clone(),
                addresses: self.addresses.clone(),
            };
            Ok(Arc::new(export) as Arc<dyn RunningExport>)
        })
    }

    fn release<'a>(&'a self, name: &'a ExportName) -> ControlFuture<'a, ()> {
        self.registry.release(name);
        Box::pin(std::future::ready(()))
    }

    fn shut_down(&self) -> ControlFuture<'_, ()> {
        Box::pin(async move {
            let stop = |acceptor: Rc<Acceptor>| async move { acceptor.stop.raise() };
            // A reactor that has shut down accepts nothing.
            let _ = call_object(&self.acceptor, stop).await;
            for server in &*self.servers {
                let shut = |server: Rc<NbdServer<_>>| async move { server.shut_down().await };
                if let Ok(left @ 1..) = call_object(server, shut).await {
                    tracing::warn!(left, "NBD connections were closed with requests in flight");
                }
            }
        })
    }
}

/// A volume that is served over NBD.
struct NbdExport<S: VolumeSource> {
    name: ExportName,
    served: Arc<ServedVolume<S>>,
    servers: ServerHandles<S>,
    registry: Arc<ExportRegistry<S>>,
    addresses: NbdAddresses,
}

impl<S: VolumeSource> RunningExport for NbdExport<S> {
    fn listeners(&self) -> Vec<String> {
        self.addresses.uris(&self.name)
    }

    fn status(&self) -> ExportStatus {
        let connections = self.served.connections.load(Ordering::Relaxed);
        ExportStatus { connections, users: Vec::new() }
    }

    fn resize(&self) -> ControlFuture<'_, ()> {
        // The protocol has no message for it: clients see the new size when they connect again.
        Box::pin(std::future::ready(()))
    }

    fn stop(&self, mode: StopMode) -> ControlFuture<'_, Result<(), ExportError>> {
        Box::pin(async move {
            if mode == StopMode::Handover {
                // Connections end with the servers, which finish their requests and say goodbye.
                return Ok(());
            }
            self.registry.reserve(self.name.clone());
            for server in &*self.servers {
                let connections = self.served.connections.clone();
                let revoke = |server: Rc<NbdServer<ReactorExports<S>>>| async move {
                    server.exports().revoke(&connections).await;
                };
                // A reactor that has shut down has no clients.
                let _ = call_object(server, revoke).await;
            }
            Ok(())
        })
    }
}
