//! The connections of one reactor.
//!
//! Always true: connections are closed within the limits once the server was stopped.

use std::rc::Rc;

use reactor::{Listener, Reactor, Stream};

use super::connection::{log_suppressed, serve_admitted};
use super::limits::Limits;
use crate::listen::accept_loop;
use crate::reserve::Reserve;
use crate::transport::{Admission, OpenConnections};
use crate::{Exports, Stop};

/// Serves connections on the reactor of the thread that created it.
///
/// A daemon with several reactors has a server on each, and distributes the connections to them.
pub struct NbdServer<E> {
    exports: E,
    limits: Limits,
    reserve: Reserve,
    stop: Stop,
    admission: Rc<Admission>,
    connections: Rc<OpenConnections>,
}

impl<E: Exports + 'static> NbdServer<E> {
    /// Creates a server of these exports.
    pub fn new(exports: E, limits: Limits) -> Rc<Self> {
        let reserve = Reserve::new(limits.shared_bytes);
        let (stop, connections) = (Stop::default(), Rc::default());
        let admission = Admission::new(limits.connections);
        Rc::new(Self { exports, limits, reserve, stop, admission, connections })
    }

    /// Returns the exports.
    pub fn exports(&self) -> &E {
        &self.exports
    }

    /// Returns the number of connections that are open, or still have requests in flight.
    pub fn connections(&self) -> usize {
        self.connections.count()
    }

    /// Serves a connection in a task of its own. Closes it at once if there is no slot for it, or
    /// the server was stopped.
    pub fn serve(self: &Rc<Self>, stream: Stream) {
        if self.stop.is_raised() {
            return;
        }
        let Some(admitted) = self.admission.admit(stream.peer()) else {
            if let Some(suppressed) = self.admission.log_quota() {
                let (peer, connections) = (stream.peer(), self.connections.count());
                tracing::warn!(%peer, connections, "NBD connection refused: all slots are in use");
                log_suppressed(suppressed);
            }
            return;
        };
        let (server, open) = (self.clone(), self.connections.open());
        let task = async move {
            let NbdServer { exports, limits, reserve, stop, .. } = &*server;
            serve_admitted(stream, exports, limits, reserve, stop, &admitted).await;
            drop(open);
        };
        Reactor::current().spawn(task).detach();
    }

    /// Serves the connections from `listener` until the server is stopped.
    pub async fn listen(self: &Rc<Self>, listener: Listener) {
        accept_loop(&listener, &self.stop, "NBD", async |stream| self.serve(stream)).await;
    }

    /// Stops listening, lets connections complete the requests that were received, and closes them.
    ///
    /// Takes up to [`Limits::drain`] and a second. Returns the number of connections with requests
    /// that the volume has not completed by then.
    pub async fn shut_down(&self) -> usize {
        self.stop.raise();
        self.connections.closed(self.limits.drain).await
    }
}
