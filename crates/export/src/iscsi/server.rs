//! The connections of one reactor.
//!
//! Always true: connections are closed within the limits once the server was stopped.

use std::rc::Rc;

use reactor::{Reactor, Stream};

use super::connection::serve_connection;
use super::shared::IscsiShared;
use crate::VolumeSource;
use crate::transport::{ConnectionServer, LocalAddress, OpenConnections};

/// Serves connections on the reactor of the thread that created it.
pub(super) struct IscsiServer<S: VolumeSource> {
    pub(super) shared: Rc<IscsiShared<S>>,
    connections: Rc<OpenConnections>,
}

impl<S: VolumeSource> IscsiServer<S> {
    pub(super) fn new(shared: IscsiShared<S>) -> Rc<Self> {
        Rc::new(Self { shared: Rc::new(shared), connections: Rc::default() })
    }

    /// Lets connections complete the requests that were received, and closes them. Returns the
    /// number of connections with requests that the volume has not completed in time.
    pub(super) async fn shut_down(&self) -> usize {
        self.shared.stop.raise();
        self.connections.closed(self.shared.limits.drain).await
    }
}

impl<S: VolumeSource> ConnectionServer for IscsiServer<S> {
    fn serve(self: Rc<Self>, stream: Stream, address: LocalAddress) {
        let shared = self.shared.clone();
        if shared.stop.is_raised() {
            return;
        }
        let Some(admitted) = shared.admission.admit(stream.peer()) else {
            if shared.admission.log_quota().is_some() {
                let (peer, connections) = (stream.peer(), self.connections.count());
                tracing::warn!(%peer, connections, "iSCSI connection refused: all slots are in use");
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
