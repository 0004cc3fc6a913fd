//! Servers of network disks: the connections of one reactor, and the servers of all reactors with
//! their listeners, for any protocol.
//!
//! Always true: connections are closed within the limits once a server was stopped.
//!
//! Must not know: messages of any protocol.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use reactor::{Handle, Reactor, Stream};

use crate::context::call_object;
use crate::leases::Leases;
use crate::listen::ListenLabel;
use crate::transport::{
    Admission, AdmittedConnection, ConnectionServer, LocalAddress, OpenConnections, Servers, TcpListeners,
    acquire_all, close_listeners, release_all,
};
use crate::{ExportError, FrontendContext, Stop, Volume};

/// A protocol, with the state that all its connections on one reactor share.
pub(crate) trait ServerProtocol: 'static {
    /// The volumes that clients open.
    type Volume: Volume + 'static;

    /// The name of the protocol, for log lines.
    const NAME: &'static str;

    /// Limits the connections.
    fn admission(&self) -> &Rc<Admission>;

    /// Raised when the server stops.
    fn stop(&self) -> &Stop;

    /// Time for completing requests after a stop.
    fn drain(&self) -> Duration;

    /// The volumes that clients have open.
    fn leases(&self) -> &Leases<Self::Volume>;

    /// Serves a connection that arrived at `address` until it ends, and logs the reason.
    fn serve_connection(
        shared: &Rc<Self>,
        stream: Stream,
        address: LocalAddress,
        admitted: &AdmittedConnection,
    ) -> impl Future<Output = ()>;
}

/// Serves connections on the reactor of the thread that created it.
pub(crate) struct NetworkServer<P> {
    shared: Rc<P>,
    connections: Rc<OpenConnections>,
}

/// The servers of a frontend, and their listeners.
pub(crate) struct ServerGroup<P: ServerProtocol> {
    servers: Servers<NetworkServer<P>>,
    listeners: Handle<TcpListeners<NetworkServer<P>>>,
}

impl<P: ServerProtocol> Clone for ServerGroup<P> {
    fn clone(&self) -> Self {
        Self { servers: self.servers.clone(), listeners: self.listeners.clone() }
    }
}

impl<P: ServerProtocol> NetworkServer<P> {
    /// Lets connections complete the requests that were received, and closes them. Returns the
    /// number of connections with requests that the volume has not completed in time.
    async fn shut_down(&self) -> usize {
        self.shared.stop().raise();
        self.connections.closed(self.shared.drain()).await
    }
}

impl<P: ServerProtocol> ConnectionServer for NetworkServer<P> {
    /// Serves a connection that arrived at `address` in a task of its own. Closes it at once if
    /// there is no slot for it, or the server was stopped.
    fn serve(self: Rc<Self>, stream: Stream, address: LocalAddress) {
        let shared = self.shared.clone();
        if shared.stop().is_raised() {
            return;
        }
        let Some(admitted) = shared.admission().admit(stream.peer()) else {
            if shared.admission().log_quota().is_some() {
                let (peer, connections) = (stream.peer(), self.connections.count());
                tracing::warn!(%peer, connections, "{} connection refused: all slots are in use", P::NAME);
            }
            return;
        };
        let open = self.connections.open();
        let task = async move {
            P::serve_connection(&shared, stream, address, &admitted).await;
            drop(open);
        };
        Reactor::current().spawn(task).detach();
    }
}

impl<P: ServerProtocol> ServerGroup<P> {
    /// Starts a server on each reactor, whose connections share the result of `share`. `setting` is
    /// the option by which users name addresses.
    ///
    /// # Errors
    /// When a reactor has shut down.
    pub(crate) async fn start(
        context: &FrontendContext,
        setting: &'static str,
        share: impl Fn() -> P + Clone + Send + 'static,
    ) -> Result<Self, ExportError> {
        let mut servers = Vec::new();
        for remote in context.reactors.all() {
            let share = share.clone();
            let start = move || async move {
                let server = NetworkServer { shared: Rc::new(share()), connections: Rc::default() };
                Handle::register(&Reactor::current(), Rc::new(server))
            };
            servers.push(remote.call(start).await?);
        }
        let servers: Servers<NetworkServer<P>> = servers.into();
        let Some(first) = context.reactors.all().first() else {
            unreachable!("a set has at least one reactor");
        };
        let platform = context.reactors.platform_of_thread();
        let label = ListenLabel { protocol: P::NAME, setting };
        let listeners = TcpListeners::register(first, servers.clone(), platform, label).await?;
        Ok(Self { servers, listeners })
    }

    /// Listens on addresses for one more export. Returns them with the ports in use.
    ///
    /// # Errors
    /// When an address cannot be listened on; none is then.
    pub(crate) async fn acquire(&self, addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>, ExportError> {
        acquire_all(&self.listeners, addresses).await
    }

    /// Ends the use of addresses by one export.
    pub(crate) async fn release(&self, addresses: &[SocketAddr]) {
        release_all(&self.listeners, addresses).await;
    }

    /// Revokes the volumes that `leases` counts from the clients of all reactors.
    pub(crate) async fn revoke(&self, leases: &Arc<AtomicU64>) {
        for server in &*self.servers {
            let leases = leases.clone();
            let revoke = |server: Rc<NetworkServer<P>>| async move {
                server.shared.leases().revoke(&leases).await;
            };
            // A reactor that has shut down has no clients.
            let _ = call_object(server, revoke).await;
        }
    }

    /// Closes the listeners and the connections.
    pub(crate) async fn shut_down(&self) {
        close_listeners(&self.listeners).await;
        for server in &*self.servers {
            let shut = |server: Rc<NetworkServer<P>>| async move { server.shut_down().await };
            if let Ok(left @ 1..) = call_object(server, shut).await {
                tracing::warn!(left, "{} connections were closed with requests in flight", P::NAME);
            }
        }
    }
}
