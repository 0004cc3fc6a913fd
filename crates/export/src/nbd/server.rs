//! The connections of one reactor, and the sockets that they come from.
//!
//! Always true: a connection that is counted is closed within the limits once the server was told to stop.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Listener, Reactor, Stream, WaitList};

use super::admission::Admission;
use super::limits::Limits;
use super::serve::{log_left_out, serve_admitted};
use crate::listen::accept_loop;
use crate::race::race;
use crate::reserve::Reserve;
use crate::{Exports, Stop};

/// Serves the connections that it is given, on the reactor of the thread that it was made on.
///
/// A daemon with several reactors has a server on each, and distributes the connections to them.
pub struct Server<E> {
    exports: E,
    limits: Limits,
    reserve: Reserve,
    stop: Stop,
    admission: Rc<Admission>,
    connections: Cell<usize>,
    closed: WaitList,
}

impl<E: Exports + 'static> Server<E> {
    /// A server of these exports.
    pub fn new(exports: E, limits: Limits) -> Rc<Self> {
        let reserve = Reserve::new(limits.shared_bytes);
        let (stop, closed) = (Stop::default(), WaitList::default());
        let admission = Admission::new(limits.connections);
        Rc::new(Self { exports, limits, reserve, stop, admission, connections: Cell::new(0), closed })
    }

    /// What is served.
    pub fn exports(&self) -> &E {
        &self.exports
    }

    /// How many connections are open, or still have requests that their volume has not ended.
    pub fn connections(&self) -> usize {
        self.connections.get()
    }

    /// Serves a connection, in a task of its own. Closes it at once if there is no room for it, or the server was told to
    /// stop.
    pub fn serve(self: &Rc<Self>, stream: Stream) {
        if self.stop.is_raised() {
            return;
        }
        let Some(admitted) = self.admission.admit(stream.peer()) else {
            if let Some(left_out) = self.admission.may_log() {
                let (peer, connections) = (stream.peer(), self.connections.get());
                tracing::warn!(%peer, connections, "NBD connection refused: there is no room for it");
                log_left_out(left_out);
            }
            return;
        };
        let counted = Counted::new(self);
        let task = async move {
            let Server { exports, limits, reserve, stop, .. } = &*counted.0;
            serve_admitted(stream, exports, limits, reserve, stop, &admitted).await;
        };
        Reactor::current().spawn(task).detach();
    }

    /// Serves the connections that come from `listener` until the server is told to stop.
    pub async fn listen(self: &Rc<Self>, listener: Listener) {
        accept_loop(&listener, &self.stop, "NBD", async |stream| self.serve(stream)).await;
    }

    /// Stops listening, lets connections finish the requests that they have read, and closes them.
    ///
    /// Takes at most [`Limits::drain`] and a second for the connections. Gives how many are left then because their
    /// volume does not end a request.
    pub async fn shut_down(&self) -> usize {
        self.stop.raise();
        let all_closed = self.closed.until(|| (self.connections.get() == 0).then_some(()));
        // As long as a connection may take, and a little for the closing itself.
        let time = self.limits.drain + Duration::from_secs(2);
        race(all_closed, Reactor::current().sleep(time)).await;
        self.connections.get()
    }
}

/// A connection's place among those of its server.
struct Counted<E>(Rc<Server<E>>);

impl<E> Counted<E> {
    fn new(server: &Rc<Server<E>>) -> Self {
        server.connections.set(server.connections.get() + 1);
        Self(server.clone())
    }
}

impl<E> Drop for Counted<E> {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
        self.0.closed.wake_all();
    }
}
