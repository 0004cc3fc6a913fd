//! The connections of one reactor.
//!
//! Always true: connections are closed within the limits once the server was stopped.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Reactor, Stream, WaitList};

use super::connection::serve_connection;
use super::shared::IscsiShared;
use crate::VolumeSource;
use crate::select::select;
use crate::transport::{ConnectionServer, LocalAddress};

/// Serves connections on the reactor of the thread that created it.
pub(super) struct IscsiServer<S: VolumeSource> {
    pub(super) shared: Rc<IscsiShared<S>>,
    connections: Cell<usize>,
    closed: WaitList,
}

impl<S: VolumeSource> IscsiServer<S> {
    pub(super) fn new(shared: IscsiShared<S>) -> Rc<Self> {
        Rc::new(Self { shared: Rc::new(shared), connections: Cell::new(0), closed: WaitList::default() })
    }

    /// Lets connections complete the requests that were received, and closes them. Returns the
    /// number of connections with requests that the volume has not completed in time.
    pub(super) async fn shut_down(&self) -> usize {
        self.shared.stop.raise();
        let all_closed = self.closed.until(|| (self.connections.get() == 0).then_some(()));
        let time = self.shared.limits.drain + Duration::from_secs(2);
        select(all_closed, Reactor::current().sleep(time)).await;
        self.connections.get()
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
                let (peer, connections) = (stream.peer(), self.connections.get());
                tracing::warn!(%peer, connections, "iSCSI connection refused: all slots are in use");
            }
            return;
        };
        let counted = CountedConnection::new(&self);
        let task = async move {
            serve_connection(stream, address, &shared, &admitted).await;
            drop(counted);
        };
        Reactor::current().spawn(task).detach();
    }
}

/// Counts a connection of a server.
struct CountedConnection<S: VolumeSource>(Rc<IscsiServer<S>>);

impl<S: VolumeSource> CountedConnection<S> {
    fn new(server: &Rc<IscsiServer<S>>) -> Self {
        server.connections.set(server.connections.get() + 1);
        Self(server.clone())
    }
}

impl<S: VolumeSource> Drop for CountedConnection<S> {
    fn drop(&mut self) {
        let server = &self.0;
        server.connections.set(server.connections.get() - 1);
        if server.connections.get() == 0 {
            server.closed.wake_all();
        }
    }
}
