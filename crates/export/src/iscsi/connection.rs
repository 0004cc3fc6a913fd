//! The life of one connection, with everything that can end it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use reactor::{Handle, Notify, Peer, Reactor, Stream};

use super::control::SessionControl;
use super::disconnect::SessionCloseReason;
use super::login::{NegotiatedLogin, log_in};
use super::nexus::{Nexus, port_name};
use super::pdu_reader::IscsiReader;
use super::session::{IscsiSession, SessionOptions};
use super::shared::IscsiShared;
use super::tasks::TaskFilter;
use super::transfers::WriteTransfers;
use super::wire::LoginStatus;
use crate::VolumeSource;
use crate::select::{Either, select};
use crate::transport::{AdmittedConnection, Budget, LocalAddress, Progress, watch_stalls};

/// Serves a connection that arrived at `address` on the current reactor until it ends, and logs the
/// reason.
pub(super) async fn serve_connection<S: VolumeSource>(
    stream: Stream,
    address: LocalAddress,
    shared: &Rc<IscsiShared<S>>,
    admitted: &AdmittedConnection,
) {
    let (peer, stream) = (stream.peer(), Rc::new(stream));
    let mut reader = IscsiReader::new(stream.clone());
    let session = match open_in_time(&stream, &mut reader, address, shared, admitted).await {
        Ok(session) => session,
        Err(end) => {
            if let Some(suppressed) = admitted.admission().log_quota() {
                end.log(peer, "none", "none");
                if suppressed > 0 {
                    tracing::warn!(suppressed, "log lines about iSCSI connections were suppressed");
                }
            }
            return close(&mut reader, end).await;
        }
    };
    admitted.establish();
    reader.digests = session.parameters.digests;
    log_open(&session, peer);
    let end = transmit(&session, &stream, &mut reader, shared).await;
    let (name, initiator) = (target_name(&session).to_owned(), &session.nexus.initiator);
    end.log(peer, &name, initiator);
    // Before the initiator sees the end of the connection, and may log in again.
    if let Some(target) = &session.target {
        target.end_session(&session.nexus);
    }
    session.send_queue.close();
    // Requests whose data will not arrive.
    session.control.abandon_transfers();
    close(&mut reader, end).await;
    session.budget.idle().await;
    session.control.tasks.clear();
    session.nexus.control.unregister();
    if let Some(target) = &session.target {
        target.forget_session(&session.nexus);
    }
}

fn target_name<S: VolumeSource>(session: &IscsiSession<S>) -> &str {
    session.target.as_ref().map_or("discovery", |target| &target.name)
}

fn log_open<S: VolumeSource>(session: &IscsiSession<S>, peer: Peer) {
    let (name, initiator) = (target_name(session), &session.nexus.initiator);
    tracing::info!(%peer, target_name = name, initiator, "iSCSI connection opened");
}

async fn open_in_time<S: VolumeSource>(
    stream: &Stream,
    reader: &mut IscsiReader,
    address: LocalAddress,
    shared: &Rc<IscsiShared<S>>,
    admitted: &AdmittedConnection,
) -> Result<Rc<IscsiSession<S>>, SessionCloseReason> {
    let closed = select(shared.stop.raised(), admitted.displaced());
    let opening = async {
        let login = log_in(stream, reader, shared, address).await?;
        begin_session(stream, login, shared, address).await
    };
    let in_time = select(opening, Reactor::current().sleep(shared.limits.login));
    match select(closed, in_time).await {
        Either::Left(Either::Left(())) => Err(SessionCloseReason::Stopped),
        Either::Left(Either::Right(())) => Err(SessionCloseReason::Displaced),
        Either::Right(Either::Left(opened)) => opened,
        Either::Right(Either::Right(())) => Err(SessionCloseReason::LoginTimeout),
    }
}

/// Adds a session to its target, once earlier sessions of the initiator port have ended. Sends the
/// last response of the login.
async fn begin_session<S: VolumeSource>(
    stream: &Stream,
    mut login: NegotiatedLogin<S>,
    shared: &Rc<IscsiShared<S>>,
    address: LocalAddress,
) -> Result<Rc<IscsiSession<S>>, SessionCloseReason> {
    let window = Budget::new(usize::MAX, shared.limits.window_bytes, &shared.window);
    let control = SessionControl::new(WriteTransfers::new(window, login.parameters.burst_max));
    let handle = Handle::register(&Reactor::current(), control.clone());
    let nexus = Arc::new(Nexus {
        port: port_name(&login.initiator, login.session),
        initiator: login.initiator.clone(),
        handle: shared.targets.new_handle(),
        account: login.account.take(),
        control: handle,
    });
    let target = login.target.clone();
    let guard = SessionGuard { target: target.clone(), nexus: nexus.clone(), is_open: false };
    let added = target.as_ref().map_or(Some(Vec::new()), |target| target.add_session(&nexus));
    let Some(earlier) = added else {
        let status = LoginStatus::OUT_OF_RESOURCES;
        login.conclude(stream, Err(status)).await?;
        return Err(SessionCloseReason::Refused(status, "the target has no free session"));
    };
    // A write of an earlier session must not take place after one of this session.
    for nexus in earlier {
        nexus.abort(TaskFilter::All).await;
    }
    login.conclude(stream, Ok(nexus.handle)).await?;
    let options = SessionOptions {
        target,
        nexus,
        control,
        parameters: login.parameters,
        permit: login.permit.take(),
        command_number: login.command_number,
        status_number: login.status_number(),
        reached: address.reached,
        connection: login.connection,
    };
    guard.keep();
    Ok(IscsiSession::new(options, shared))
}

/// Removes a session whose login is abandoned.
struct SessionGuard<S: VolumeSource> {
    target: Option<Arc<super::target::IscsiTarget<S>>>,
    nexus: Arc<Nexus>,
    is_open: bool,
}

impl<S: VolumeSource> SessionGuard<S> {
    fn keep(mut self) {
        self.is_open = true;
    }
}

impl<S: VolumeSource> Drop for SessionGuard<S> {
    fn drop(&mut self) {
        if self.is_open {
            return;
        }
        if let Some(target) = &self.target {
            target.end_session(&self.nexus);
            target.forget_session(&self.nexus);
        }
        self.nexus.control.unregister();
    }
}

/// Serves commands until something ends the connection.
async fn transmit<S: VolumeSource>(
    session: &Rc<IscsiSession<S>>,
    stream: &Stream,
    reader: &mut IscsiReader,
    shared: &IscsiShared<S>,
) -> SessionCloseReason {
    let (reactor, limits) = (Reactor::current(), &shared.limits);
    let (stalled, silent) = (Rc::new(Notify::default()), Rc::new(Notify::default()));
    let incoming = reader.recv.progress().clone();
    // The tasks end when their handles are dropped.
    let (watched, receiving) = (session.clone(), incoming.clone());
    let look = move || {
        let sending = watched.send_queue.progress();
        [receiving.stage(watched.control.transfers.is_expecting()), sending.stage(false)]
    };
    let _watchdog = reactor.spawn(watch_stalls(look, limits.stalled, stalled.clone()));
    let _pings = reactor.spawn(watch_silence(incoming, session.clone(), limits.silent, silent.clone()));
    let overdue = async {
        session.cancelled(&shared.stop).await;
        reactor.sleep(limits.drain).await;
    };
    let timers = select(silent.notified(), overdue);
    let run = session.run(reader, stream, &shared.stop);
    match select(run, select(stalled.notified(), timers)).await {
        Either::Left(end) => end,
        Either::Right(Either::Left(())) => SessionCloseReason::Stalled,
        Either::Right(Either::Right(Either::Left(()))) => SessionCloseReason::Silent,
        Either::Right(Either::Right(Either::Right(()))) => SessionCloseReason::DrainTimeout,
    }
}

/// Closes a connection so that the initiator receives the last messages.
async fn close(reader: &mut IscsiReader, end: SessionCloseReason) {
    let lingers = matches!(
        end,
        SessionCloseReason::Refused(..)
            | SessionCloseReason::Stopped
            | SessionCloseReason::Ended(_)
            | SessionCloseReason::LoggedOut
    );
    if lingers {
        reader.recv.linger().await;
    }
}

/// Sends a ping when nothing has arrived for `limit`, and notifies `silent` when nothing arrives
/// for as long again.
async fn watch_silence<S: VolumeSource>(
    incoming: Rc<Progress>,
    session: Rc<IscsiSession<S>>,
    limit: Duration,
    silent: Rc<Notify>,
) {
    let (mut before, mut is_pinged) = (incoming.moved.get(), false);
    loop {
        Reactor::current().sleep(limit).await;
        let now = incoming.moved.get();
        match (now == before, is_pinged) {
            (true, true) => return silent.notify(),
            (true, false) => session.send_ping(),
            (false, _) => {}
        }
        (is_pinged, before) = (now == before, now);
    }
}
