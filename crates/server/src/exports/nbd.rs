//! NBD on the reactors: a server on each, and the sockets whose connections are dealt out to them.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use export::nbd::{Server, Stop, accept};
use export::{ListedExport, OpenError, OpenErrorKind, OpenExport};
use reactor::{Access, Home, Listener, Reactor, Remote, Stream};

use super::listen::{Purpose, listen_tcp, listen_unix};
use super::table::{Active, Entry, Name, Table};
use super::volume::{ExportedVolume, Lease};
use crate::capacity::nbd_limits;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::reactors::{self, Reactors, call_resident};
use api::types::Protocol;

/// How long requests in flight are waited for when an export is ended.
const REVOKE_PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two looks whether they have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// NBD, on all reactors.
pub(super) struct Nbd {
    servers: Vec<Home<Local>>,
    acceptor: Option<Home<Acceptor>>,
    socket: Option<PathBuf>,
    addresses: Vec<SocketAddr>,
}

/// The server of one reactor.
struct Local {
    server: Rc<Server<Offered>>,
}

/// What takes connections, on one of the reactors.
struct Acceptor {
    stop: Stop,
}

/// The exports as one reactor's server sees them.
struct Offered {
    table: Arc<Table>,
    /// The clients of this reactor.
    leases: RefCell<Vec<Weak<Lease>>>,
}

impl export::Exports for Offered {
    type Volume = ExportedVolume;

    async fn open(&self, name: &str) -> Result<OpenExport<ExportedVolume>, OpenError> {
        let Some((active, read_only)) = self.table.find(name) else {
            return Err(OpenError::new(OpenErrorKind::NotFound, format!("no export is called {name:?}")));
        };
        let active = active.map_err(|error| OpenError::new(OpenErrorKind::Unavailable, error.to_string()))?;
        let volume = ExportedVolume::open(&active, read_only);
        let mut leases = self.leases.borrow_mut();
        leases.retain(|lease| lease.strong_count() > 0);
        leases.push(volume.lease());
        Ok(OpenExport { volume, description: String::new() })
    }

    async fn list(&self) -> Vec<ListedExport> {
        let listed = |name: &Name, entry: &Entry| {
            let by_nbd = entry.manner.protocol == Protocol::Nbd;
            by_nbd.then(|| ListedExport { name: name.to_string(), description: String::new() })
        };
        self.table.list(listed).into_iter().flatten().collect()
    }
}

impl Nbd {
    /// Starts the servers, and listens where the configuration says.
    ///
    /// # Errors
    /// When an address cannot be had.
    pub(super) async fn start(
        config: &Config,
        access: Access,
        reactors: &Reactors,
        table: &Arc<Table>,
    ) -> Result<Self> {
        let mut servers = Vec::new();
        let limits = nbd_limits(reactors.all().len());
        for remote in reactors.all() {
            let (table, limits) = (table.clone(), limits.clone());
            let start = move || async move {
                let offered = Offered { table, leases: RefCell::default() };
                let server = Server::new(offered, limits);
                Home::settle(&Reactor::current(), Rc::new(Local { server }))
            };
            servers.push(remote.call(start).await?);
        }
        let mut nbd =
            Self { servers, acceptor: None, socket: config.nbd_socket.clone(), addresses: Vec::new() };
        if let Some(first) = reactors.all().first() {
            nbd.listen(first, config, access).await?;
        }
        Ok(nbd)
    }

    async fn listen(&mut self, reactor: &Remote, config: &Config, access: Access) -> Result<()> {
        let (socket, listen, servers) =
            (config.nbd_socket.clone(), config.nbd_listen.clone(), self.servers.clone());
        let start = move || async move {
            let listeners = bind(socket.as_deref(), &listen, access).await?;
            let addresses: Vec<SocketAddr> = listeners.iter().filter_map(Listener::local_address).collect();
            let stop = Stop::default();
            let deal = Rc::new(Deal { servers, next: Cell::new(0) });
            for listener in listeners {
                let (stop, deal) = (stop.clone(), deal.clone());
                let take = async move { accept(&listener, &stop, |stream| deal.out(stream)).await };
                Reactor::current().spawn(take).detach();
            }
            Ok::<_, Error>((Home::settle(&Reactor::current(), Rc::new(Acceptor { stop })), addresses))
        };
        let (acceptor, addresses) = reactor.call(start).await??;
        self.acceptor = Some(acceptor);
        self.addresses = addresses;
        Ok(())
    }

    /// True if there is any address that clients can use.
    pub(super) fn listens(&self) -> bool {
        self.socket.is_some() || !self.addresses.is_empty()
    }

    /// Where it is served.
    pub(super) fn addresses(&self) -> (Option<String>, Vec<String>) {
        let socket = self.socket.as_ref().map(|path| path.to_string_lossy().into_owned());
        (socket, self.addresses.iter().map(ToString::to_string).collect())
    }

    /// What clients are told to connect to.
    pub(super) fn uris(&self, name: &Name) -> Vec<String> {
        let local = self.socket.as_ref().map(|path| format!("nbd+unix:///{name}?socket={}", path.display()));
        let network = self.addresses.iter().map(|address| {
            if address.ip().is_unspecified() {
                let host = rustix::system::uname();
                return format!("nbd://{}:{}/{name}", host.nodename().to_string_lossy(), address.port());
            }
            format!("nbd://{address}/{name}")
        });
        local.into_iter().chain(network).collect()
    }

    /// Takes a volume away from its clients, and waits for the requests that they have in flight.
    pub(super) async fn revoke(&self, active: Arc<Active>) {
        for server in &self.servers {
            let active = active.clone();
            let revoke = |local: Rc<Local>| async move { local.revoke(&active).await };
            // A reactor that is gone serves nobody.
            let _ = call_resident(server, revoke).await;
        }
    }

    /// Takes no more connections, and ends those that there are after the requests that they have begun.
    pub(super) async fn shut_down(&self) {
        if let Some(acceptor) = &self.acceptor {
            let stop = |acceptor: Rc<Acceptor>| async move { acceptor.stop.raise() };
            let _ = call_resident(acceptor, stop).await;
        }
        for server in &self.servers {
            let shut = |local: Rc<Local>| async move { local.server.shut_down().await };
            if let Ok(left @ 1..) = call_resident(server, shut).await {
                tracing::warn!(left, "NBD connections were cut with requests in flight");
            }
        }
    }
}

impl Local {
    async fn revoke(&self, active: &Active) {
        let leases: Vec<Rc<Lease>> =
            self.server.exports().leases.borrow().iter().filter_map(Weak::upgrade).collect();
        let revoked = leases.iter().filter(|lease| lease.is_on(active)).filter_map(|lease| lease.revoke());
        let in_flight: Vec<_> = revoked.collect();
        let reactor = Reactor::current();
        let end = reactor.now() + REVOKE_PATIENCE;
        while in_flight.iter().any(|volume| volume.strong_count() > 0) && reactor.now() < end {
            reactor.sleep(LOOK_AGAIN).await;
        }
    }
}

/// Deals connections out to the reactors in turn.
struct Deal {
    servers: Vec<Home<Local>>,
    next: Cell<usize>,
}

impl Deal {
    fn out(&self, stream: Stream) {
        let turn = self.next.replace(self.next.get().wrapping_add(1));
        let Some(home) = self.servers.get(turn % self.servers.len().max(1)) else { return };
        if let Some(local) = home.local() {
            local.server.serve(stream);
            return;
        }
        let (detached, there) = (stream.detach(), home.clone());
        let serve = move || {
            let Some(local) = there.local() else { return };
            match detached.attach(&reactors::platform()) {
                Ok(stream) => local.server.serve(stream),
                Err(error) => tracing::warn!(%error, "a connection could not be moved to its reactor"),
            }
        };
        // A reactor that is gone drops the connection, which closes it.
        let _ = home.remote().post(serve);
    }
}

async fn bind(socket: Option<&Path>, listen: &[SocketAddr], access: Access) -> Result<Vec<Listener>> {
    let mut listeners = Vec::new();
    if let Some(path) = socket {
        listeners.push(listen_unix(path, access, Purpose { protocol: "NBD", flag: "--nbd-socket" }).await?);
    }
    for address in listen {
        listeners.push(listen_tcp(*address, Purpose { protocol: "NBD", flag: "--nbd-listen" }).await?);
    }
    Ok(listeners)
}
