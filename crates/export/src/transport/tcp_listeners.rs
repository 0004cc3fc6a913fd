//! The TCP listeners of a frontend: one for each address, shared by its users: exports, and
//! services such as discovery.
//!
//! Always true: an address is listened on while it has a user. Runs on one reactor.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use reactor::{Handle, Listener, NetErrorKind, Platform, Reactor, Remote, Stream};

use crate::context::call_object;
use crate::listen::{ListenLabel, RETRY_FOR, RETRY_PAUSE, accept_loop};
use crate::{ExportError, Stop};

/// The address at which a connection arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalAddress {
    /// The address of the listener, as it was configured.
    pub(crate) listener: SocketAddr,
    /// The address that the client used.
    pub(crate) reached: SocketAddr,
}

/// A server of connections on one reactor.
pub(crate) trait ConnectionServer: 'static {
    /// Serves a connection in a task of its own, or closes it at once.
    fn serve(self: Rc<Self>, stream: Stream, address: LocalAddress);
}

/// The servers of a frontend, one for each reactor.
pub(crate) type Servers<T> = Arc<[Handle<T>]>;

/// The TCP listeners of one frontend.
pub(crate) struct TcpListeners<T: ConnectionServer> {
    servers: Servers<T>,
    platform: fn() -> Rc<Platform>,
    label: ListenLabel,
    listeners: RefCell<BTreeMap<SocketAddr, UsedListener>>,
    /// The reactor of the next connection.
    next: Cell<usize>,
}

struct UsedListener {
    users: usize,
    stop: Stop,
}

impl<T: ConnectionServer> TcpListeners<T> {
    /// Registers the listeners of a frontend on a reactor.
    ///
    /// # Errors
    /// When the reactor has shut down.
    pub(crate) async fn register(
        reactor: &Remote,
        servers: Servers<T>,
        platform: fn() -> Rc<Platform>,
        label: ListenLabel,
    ) -> Result<Handle<Self>, ExportError> {
        let register = move || async move {
            let (listeners, next) = (RefCell::default(), Cell::new(0));
            let all = Self { servers, platform, label, listeners, next };
            Handle::register(&Reactor::current(), Rc::new(all))
        };
        Ok(reactor.call(register).await?)
    }

    /// Listens on an address for one more user. Returns the address, with the port that the system
    /// chose if `address` has none. An address that another process uses is retried for `patience`.
    ///
    /// # Errors
    /// `Busy` when another process serves there; otherwise the system's error. `label` names the
    /// setting of the address.
    pub(crate) async fn acquire(
        self: &Rc<Self>,
        address: SocketAddr,
        patience: Duration,
        label: ListenLabel,
    ) -> Result<SocketAddr, ExportError> {
        let reactor = Reactor::current();
        let end = reactor.now() + patience;
        loop {
            // Another user may have bound the address during a pause.
            if let Some(listener) = self.listeners.borrow_mut().get_mut(&address) {
                listener.users += 1;
                return Ok(address);
            }
            match Listener::bind_tcp(&(self.platform)(), address) {
                Ok(listener) => return Ok(self.add(listener, address)),
                Err(error) if error.kind() == NetErrorKind::InUse && reactor.now() < end => {
                    reactor.sleep(RETRY_PAUSE).await;
                }
                Err(error) => return Err(label.explain(&error)),
            }
        }
    }

    /// Accepts connections for a first user. Returns the address with its port.
    fn add(self: &Rc<Self>, listener: Listener, address: SocketAddr) -> SocketAddr {
        let address = listener.local_address().unwrap_or(address);
        let stop = Stop::default();
        let (stopped, listeners) = (stop.clone(), self.clone());
        let accept = async move {
            let dispatch = async |stream: Stream| listeners.dispatch(stream, address);
            accept_loop(&listener, &stopped, listeners.label.protocol, dispatch).await;
        };
        Reactor::current().spawn(accept).detach();
        self.listeners.borrow_mut().insert(address, UsedListener { users: 1, stop });
        address
    }

    /// Ends the use of an address by one user.
    pub(crate) fn release(&self, address: SocketAddr) {
        let mut listeners = self.listeners.borrow_mut();
        let Some(listener) = listeners.get_mut(&address) else { return };
        listener.users -= 1;
        if listener.users == 0 {
            listener.stop.raise();
            listeners.remove(&address);
        }
    }

    /// Closes all listeners.
    fn close(&self) {
        for listener in self.listeners.take().into_values() {
            listener.stop.raise();
        }
    }

    /// Gives a connection to the next reactor.
    fn dispatch(&self, stream: Stream, listener: SocketAddr) {
        let turn = self.next.replace(self.next.get().wrapping_add(1));
        let Some(handle) = self.servers.get(turn % self.servers.len().max(1)) else { return };
        let address = LocalAddress { listener, reached: stream.local_address().unwrap_or(listener) };
        if let Some(server) = handle.local() {
            server.serve(stream, address);
            return;
        }
        let (detached, remote_handle, platform) = (stream.detach(), handle.clone(), self.platform);
        let serve = move || {
            let Some(server) = remote_handle.local() else { return };
            match detached.attach(&platform()) {
                Ok(stream) => server.serve(stream, address),
                Err(error) => tracing::warn!(%error, "cannot move a connection to its reactor"),
            }
        };
        // A reactor that has shut down drops the connection, which closes it.
        let _ = handle.remote().post(serve);
    }
}

/// Listens on addresses for one more user. Returns them with the ports in use.
///
/// # Errors
/// As [`TcpListeners::acquire`]; no address is acquired then.
pub(crate) async fn acquire_all<T: ConnectionServer>(
    listeners: &Handle<TcpListeners<T>>,
    addresses: &[SocketAddr],
    label: ListenLabel,
) -> Result<Vec<SocketAddr>, ExportError> {
    let mut acquired = Vec::new();
    for address in addresses.iter().copied() {
        let acquire = move |listeners: Rc<TcpListeners<T>>| async move {
            listeners.acquire(address, RETRY_FOR, label).await
        };
        match call_object(listeners, acquire).await? {
            Ok(address) => acquired.push(address),
            Err(error) => {
                release_all(listeners, &acquired).await;
                return Err(error);
            }
        }
    }
    Ok(acquired)
}

/// Ends the use of addresses by one user.
pub(crate) async fn release_all<T: ConnectionServer>(
    listeners: &Handle<TcpListeners<T>>,
    addresses: &[SocketAddr],
) {
    for address in addresses.iter().copied() {
        let release = move |listeners: Rc<TcpListeners<T>>| async move { listeners.release(address) };
        // A reactor that has shut down listens on nothing.
        let _ = call_object(listeners, release).await;
    }
}

/// Closes the listeners of a frontend.
pub(crate) async fn close_listeners<T: ConnectionServer>(listeners: &Handle<TcpListeners<T>>) {
    let close = |listeners: Rc<TcpListeners<T>>| async move { listeners.close() };
    // A reactor that has shut down accepts nothing.
    let _ = call_object(listeners, close).await;
}

/// The URIs of a network disk: `scheme`, each address, and the name of the disk.
pub(crate) fn network_uris(scheme: &str, addresses: &[SocketAddr], name: &str) -> Vec<String> {
    let uri = |address: &SocketAddr| {
        if address.ip().is_unspecified() {
            let host = rustix::system::uname();
            return format!("{scheme}://{}:{}/{name}", host.nodename().to_string_lossy(), address.port());
        }
        format!("{scheme}://{address}/{name}")
    };
    addresses.iter().map(uri).collect()
}
