//! The connections of one reactor.
//!
//! Always true: connections are closed within the limits once the server was stopped.

use std::rc::Rc;

use reactor::{Reactor, Stream};

use super::connection::serve_connection;
use super::shared::ServerShared;
use crate::VolumeSource;
use crate::transport::{ConnectionServer, LocalAddress, OpenConnections};

/// Serves connections on the reactor of the thread that created it.
pub(super) struct NvmeServer<S: VolumeSource> {
    pub(super) shared: Rc<ServerShared<S>>,
    connections: Rc<OpenConnections>,
}

impl<S: VolumeSource> NvmeServer<S> {
    pub(super) fn new(shared: ServerShared<S>) -> Rc<Self> {
        Rc::new(Self { shared: Rc::new(shared), connections: Rc::default() })
    }

    /// Lets connections complete the requests that were received, and closes them. Returns the
    /// number of connections with requests that the volume has not completed in time.
    pub(super) async fn shut_down(&self) -> usize {
        self.shared.stop.raise();
        self.connections.closed(self.shared.limits.drain).await
    }
}

impl<S: VolumeSource> ConnectionServer for NvmeServer<S> {
    /// Serves a connection that arrived at `address` in a task of its own. Closes it at once if
    /// there is no slot for it, or the server was stopped.
    fn serve(self: Rc<Self>, stream: Stream, address: LocalAddress) {
        let shared = self.shared.clone();
        if shared.stop.is_raised() {
            return;
        }
        let Some(admitted) = shared.admission.admit(stream.peer()) else {
            if shared.admission.log_quota().is_some() {
                let (peer, connections) = (stream.peer(), self.connections.count());
                tracing::warn!(%peer, connections, "NVMe/TCP connection refused: all slots are in use");
            }
            return;
        };
        let open = self.connections.open();
        let task = async move {
            serve_connection(stream, address, &shared, &admitted).await;
            drop(open);
        };
        Reactor::current().spawn(task).detach();
    }
}
