//! One connection from its beginning to its end, with everything that can end it.

use std::rc::Rc;
use std::time::Duration;

use reactor::{Notify, Reactor, Stream};

use super::admission::{Admission, Admitted};
use super::end::End;
use super::handshake::negotiate;
use super::intake::{Intake, Movement};
use super::limits::Limits;
use super::session::Session;
use crate::race::{First, race};
use crate::reserve::Reserve;
use crate::{Exports, Stop, Volume};

/// Time in which a client is to close a connection on which we said our last word. Closing it at once, with requests
/// unread, would make the kernel drop replies that the client has not received yet.
const LINGER: Duration = Duration::from_secs(1);

/// Serves a client on the reactor of the calling task until the connection ends, and logs why it did. Connections that
/// are given the same `reserve` share [`Limits::shared_bytes`].
///
/// Gives the same reason when the connection is closed and every request that was begun on the volume has ended. The
/// future is to be driven to its end: dropped, it leaves requests behind that end by themselves.
pub async fn serve_connection<E: Exports>(
    stream: Stream,
    exports: &E,
    limits: &Limits,
    reserve: &Reserve,
    stop: &Stop,
) -> End {
    let Some(admitted) = Admission::new(1).admit(stream.peer()) else { unreachable!("it is the only one") };
    serve_admitted(stream, exports, limits, reserve, stop, &admitted).await
}

/// The same for one of several connections.
pub(super) async fn serve_admitted<E: Exports>(
    stream: Stream,
    exports: &E,
    limits: &Limits,
    reserve: &Reserve,
    stop: &Stop,
    admitted: &Admitted,
) -> End {
    let peer = stream.peer();
    let mut connection = Connection::new(stream);
    let handshake = negotiate(&connection.stream, &mut connection.intake, exports);
    let closed = race(stop.raised(), admitted.displaced());
    let agreement = match race(closed, race(handshake, Reactor::current().sleep(limits.handshake))).await {
        First::Left(First::Left(())) => Err(End::Stopped),
        First::Left(First::Right(())) => Err(End::Displaced),
        First::Right(First::Left(agreement)) => agreement,
        First::Right(First::Right(())) => Err(End::HandshakeTimeout),
    };
    let agreement = match agreement {
        Ok(agreement) => agreement,
        Err(end) => {
            if let Some(left_out) = admitted.admission().may_log() {
                end.log(peer, None);
                log_left_out(left_out);
            }
            return end;
        }
    };
    admitted.establish();
    let session = Session::new(agreement, limits, reserve);
    let name = &session.agreement.name;
    tracing::info!(%peer, export = name, "NBD connection opened");
    let end = connection.transmit(&session, limits, stop).await;
    end.log(peer, Some(name));
    session.outbox.close();
    session.budget.idle().await;
    end
}

/// Says how many lines were left out of the log, if any were.
pub(super) fn log_left_out(lines: u64) {
    if lines > 0 {
        tracing::warn!(
            lines,
            "NBD connections that used no export were closed or refused, and not logged one by one"
        );
    }
}

/// A connection and what has been received on it.
struct Connection {
    stream: Rc<Stream>,
    intake: Intake,
}

impl Connection {
    fn new(stream: Stream) -> Self {
        let stream = Rc::new(stream);
        Self { intake: Intake::new(stream.clone()), stream }
    }

    /// Serves requests, and closes the connection.
    async fn transmit<V: Volume + 'static>(
        mut self,
        session: &Rc<Session<V>>,
        limits: &Limits,
        stop: &Stop,
    ) -> End {
        let reactor = Reactor::current();
        let stalled = Rc::new(Notify::default());
        let incoming = self.intake.movement().clone();
        // Ends with its handle.
        let _watchdog = reactor.spawn(watch(incoming, session.clone(), limits.stalled, stalled.clone()));
        let overdue = async {
            session.called_off(stop).await;
            reactor.sleep(limits.drain).await;
        };
        let run = session.run(&mut self.intake, &self.stream, stop);
        match race(run, race(stalled.notified(), overdue)).await {
            First::Left(end @ (End::Stopped | End::Withdrawn)) => {
                self.linger().await;
                end
            }
            First::Left(end) => end,
            First::Right(First::Left(())) => End::Stalled,
            First::Right(First::Right(())) => End::Abandoned,
        }
    }

    /// Says the last word and waits for the client's.
    async fn linger(&mut self) {
        if self.stream.shutdown().is_ok() {
            race(self.intake.discard(), Reactor::current().sleep(LINGER)).await;
        }
    }
}

/// Tells when one message takes longer than `limit`, in either direction.
///
/// It looks once in that time, instead of setting a timer for each message.
async fn watch<V>(incoming: Rc<Movement>, session: Rc<Session<V>>, limit: Duration, stalled: Rc<Notify>) {
    let outgoing = session.outbox.movement();
    let look = || [&*incoming, outgoing].map(|movement| movement.within.get().then(|| movement.moved.get()));
    let mut before = look();
    loop {
        Reactor::current().sleep(limit).await;
        let now = look();
        if now.iter().zip(&before).any(|(now, before)| now.is_some() && now == before) {
            return stalled.notify();
        }
        before = now;
    }
}
