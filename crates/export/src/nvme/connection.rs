//! The life of one connection, with everything that can end it.

use std::rc::Rc;
use std::time::Duration;

use reactor::{Notify, Reactor, Stream};

use super::direct_replies::send;
use super::disconnect::QueueCloseReason;
use super::handshake::{OpenedQueue, open_queue};
use super::limits::TRANSFER_MAX;
use super::pdu_reader::PduReader;
use super::session::NvmeSession;
use super::shared::ServerShared;
use crate::VolumeSource;
use crate::select::{Either, select};
use crate::transport::{AdmittedConnection, LocalAddress, watch_stalls};

/// Serves a connection that arrived at `address` on the current reactor until it ends, and logs the
/// reason.
pub(super) async fn serve_connection<S: VolumeSource>(
    stream: Stream,
    address: LocalAddress,
    shared: &Rc<ServerShared<S>>,
    admitted: &AdmittedConnection,
) {
    let (peer, stream) = (stream.peer(), Rc::new(stream));
    let mut reader = PduReader::new(stream, TRANSFER_MAX as usize);
    let opened = open_in_time(&mut reader, address, shared, admitted).await;
    let OpenedQueue { identity, encoder, commands } = match opened {
        Ok(opened) => opened,
        Err(end) => {
            let end = end.within(reader.recv.link());
            if let Some(suppressed) = admitted.admission().log_quota() {
                end.log(peer, "none", 0);
                if suppressed > 0 {
                    tracing::warn!(suppressed, "log lines about NVMe/TCP connections were suppressed");
                }
            }
            return close(&mut reader, end).await;
        }
    };
    admitted.establish();
    let session = NvmeSession::new(identity, encoder, commands, shared);
    let (name, queue) = (session.identity.name().to_owned(), session.identity.id);
    let host = &session.identity.controller.host.name;
    tracing::info!(%peer, subsystem = name, queue, host, "NVMe/TCP connection opened");
    let end = transmit(&session, &mut reader, shared).await;
    end.log(peer, &name, queue);
    // Before the host sees the end of the connection, and may connect the queue again.
    session.identity.disconnect();
    session.send_queue.close();
    // Requests whose data will not arrive.
    session.transfers.clear();
    session.fused.clear();
    close(&mut reader, end).await;
    session.budget.idle().await;
}

async fn open_in_time<S: VolumeSource>(
    reader: &mut PduReader,
    address: LocalAddress,
    shared: &ServerShared<S>,
    admitted: &AdmittedConnection,
) -> Result<OpenedQueue<S>, QueueCloseReason> {
    let closed = select(shared.stop.raised(), admitted.displaced());
    let opening = open_queue(reader, &shared.target, address);
    let in_time = select(opening, Reactor::current().sleep(shared.limits.handshake));
    match select(closed, in_time).await {
        Either::Left(Either::Left(())) => Err(QueueCloseReason::Stopped),
        Either::Left(Either::Right(())) => Err(QueueCloseReason::Displaced),
        Either::Right(Either::Left(opened)) => opened,
        Either::Right(Either::Right(())) => Err(QueueCloseReason::HandshakeTimeout),
    }
}

/// Serves commands until something ends the connection.
async fn transmit<S: VolumeSource>(
    session: &Rc<NvmeSession<S>>,
    reader: &mut PduReader,
    shared: &ServerShared<S>,
) -> QueueCloseReason {
    let (reactor, limits) = (Reactor::current(), &shared.limits);
    let (stalled, silent) = (Rc::new(Notify::default()), Rc::new(Notify::default()));
    let incoming = reader.recv.progress().clone();
    // The tasks end when their handles are dropped.
    let (watched, receiving) = (session.clone(), incoming);
    let look = move || {
        let sending = watched.send_queue.progress();
        [receiving.stage(watched.transfers.is_expecting()), sending.stage(false)]
    };
    let _watchdog = reactor.spawn(watch_stalls(look, limits.stalled, stalled.clone()));
    let _keep_alive = reactor.spawn(watch_keep_alive(session.clone(), limits.discovery_idle, silent.clone()));
    let overdue = async {
        session.cancelled(&shared.stop).await;
        reactor.sleep(limits.drain).await;
    };
    let timers = select(silent.notified(), overdue);
    let link = reader.recv.link().clone();
    let run = session.run(reader, &link, &shared.stop);
    let end = match select(run, select(stalled.notified(), timers)).await {
        Either::Left(end) => end,
        Either::Right(Either::Left(())) => QueueCloseReason::Stalled,
        Either::Right(Either::Right(Either::Left(()))) => QueueCloseReason::KeepAlive,
        Either::Right(Either::Right(Either::Right(()))) => QueueCloseReason::DrainTimeout,
    };
    end.within(&link)
}

/// Closes a connection so that the host receives the last messages; after a violation of the
/// protocol, with its description. Ends a TLS session, unless its connection has failed.
async fn close(reader: &mut PduReader, end: QueueCloseReason) {
    let has_failed = matches!(end, QueueCloseReason::Io(_));
    let lingers = match end {
        QueueCloseReason::Violation(error) => {
            send(reader.recv.link(), &error.encode(reader.header())).await.is_ok()
        }
        QueueCloseReason::Refused(_)
        | QueueCloseReason::TlsRefused(_)
        | QueueCloseReason::Tls(_)
        | QueueCloseReason::Stopped
        | QueueCloseReason::Ended(_)
        | QueueCloseReason::Disconnected => true,
        _ => false,
    };
    if lingers {
        reader.recv.linger().await;
    } else if !has_failed {
        reader.recv.end_session().await;
    }
}

/// Notifies `silent` when no command of the controller arrives within its keep alive time, or
/// within up to twice that time: commands of all queues count, without a timer for each. A
/// discovery controller without a keep alive time has a limit too, because hosts may leave it open.
async fn watch_keep_alive<S: VolumeSource>(
    session: Rc<NvmeSession<S>>,
    discovery_idle: Duration,
    silent: Rc<Notify>,
) {
    if !session.identity.is_admin() {
        return;
    }
    let controller = &session.identity.controller;
    loop {
        /// Pause between two checks whether a host has enabled keep alive.
        const DISABLED: Duration = Duration::from_secs(10);
        let time = controller.keep_alive();
        let limit = match (time, &session.identity.subsystem) {
            (0, None) => Some(discovery_idle),
            (0, Some(_)) => None,
            (time, _) => Some(Duration::from_millis(time.into())),
        };
        Reactor::current().sleep(limit.unwrap_or(DISABLED)).await;
        if limit.is_some() && time == controller.keep_alive() && !controller.take_activity() {
            return silent.notify();
        }
    }
}
