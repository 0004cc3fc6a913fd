//! The life of one connection, with everything that can end it.

use std::rc::Rc;

use reactor::{Notify, Reactor, Stream};

use super::disconnect::DisconnectReason;
use super::handshake::negotiate;
use super::limits::Limits;
use super::session::NbdSession;
use crate::reserve::Reserve;
use crate::select::{Either, select};
use crate::transport::{Admission, AdmittedConnection, RecvBuffer, watch_stalls};
use crate::{Exports, Stop, Volume};

/// Serves a client on the current reactor until the connection ends, and logs the reason.
/// Connections with the same `reserve` share [`Limits::shared_bytes`].
///
/// Returns the reason once the connection is closed and all requests on the volume have completed.
/// If the future is dropped early, its requests complete in the background.
pub async fn serve_connection<E: Exports>(
    stream: Stream,
    exports: &E,
    limits: &Limits,
    reserve: &Reserve,
    stop: &Stop,
) -> DisconnectReason {
    let Some(admitted) = Admission::new(1).admit(stream.peer()) else {
        unreachable!("the first connection is admitted")
    };
    serve_admitted(stream, exports, limits, reserve, stop, &admitted).await
}

/// Serves a client as [`serve_connection`], for one of several connections.
pub(super) async fn serve_admitted<E: Exports>(
    stream: Stream,
    exports: &E,
    limits: &Limits,
    reserve: &Reserve,
    stop: &Stop,
    admitted: &AdmittedConnection,
) -> DisconnectReason {
    let peer = stream.peer();
    let mut connection = Connection::new(stream);
    let handshake = negotiate(&connection.stream, &mut connection.recv, exports);
    let closed = select(stop.raised(), admitted.displaced());
    let negotiated = match select(closed, select(handshake, Reactor::current().sleep(limits.handshake))).await
    {
        Either::Left(Either::Left(())) => Err(DisconnectReason::Stopped),
        Either::Left(Either::Right(())) => Err(DisconnectReason::Displaced),
        Either::Right(Either::Left(negotiated)) => negotiated,
        Either::Right(Either::Right(())) => Err(DisconnectReason::HandshakeTimeout),
    };
    let negotiated = match negotiated {
        Ok(negotiated) => negotiated,
        Err(end) => {
            if let Some(suppressed) = admitted.admission().log_quota() {
                end.log(peer, None);
                log_suppressed(suppressed);
            }
            return end;
        }
    };
    admitted.establish();
    let session = NbdSession::new(negotiated, limits, reserve);
    let name = &session.negotiated.name;
    tracing::info!(%peer, export = name, "NBD connection opened");
    let end = connection.transmit(&session, limits, stop).await;
    end.log(peer, Some(name));
    session.send_queue.close();
    session.budget.idle().await;
    end
}

/// Logs the number of suppressed log lines, if there are any.
pub(super) fn log_suppressed(lines: u64) {
    if lines > 0 {
        tracing::warn!(lines, "log lines about NBD connections without an export were suppressed");
    }
}

/// A connection and its receive buffer.
struct Connection {
    stream: Rc<Stream>,
    recv: RecvBuffer,
}

impl Connection {
    fn new(stream: Stream) -> Self {
        let stream = Rc::new(stream);
        Self { recv: RecvBuffer::new(stream.clone()), stream }
    }

    /// Serves requests, and closes the connection.
    async fn transmit<V: Volume + 'static>(
        mut self,
        session: &Rc<NbdSession<V>>,
        limits: &Limits,
        stop: &Stop,
    ) -> DisconnectReason {
        let reactor = Reactor::current();
        let stalled = Rc::new(Notify::default());
        let incoming = self.recv.progress().clone();
        // The task ends when its handle is dropped.
        let watched = session.clone();
        let look = move || [incoming.stage(false), watched.send_queue.progress().stage(false)];
        let _watchdog = reactor.spawn(watch_stalls(look, limits.stalled, stalled.clone()));
        let overdue = async {
            session.cancelled(stop).await;
            reactor.sleep(limits.drain).await;
        };
        let run = session.run(&mut self.recv, &self.stream, stop);
        match select(run, select(stalled.notified(), overdue)).await {
            Either::Left(end @ (DisconnectReason::Stopped | DisconnectReason::Withdrawn)) => {
                self.recv.linger().await;
                end
            }
            Either::Left(end) => end,
            Either::Right(Either::Left(())) => DisconnectReason::Stalled,
            Either::Right(Either::Right(())) => DisconnectReason::DrainTimeout,
        }
    }
}
