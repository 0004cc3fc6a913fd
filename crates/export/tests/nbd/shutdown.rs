//! Shutting a server down with requests in flight.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use export::nbd::{DisconnectReason, Limits, NbdServer};
use export::{MemoryExports, MemoryVolume};
use reactor::{Access, Backend, Clock, Listener, Platform, Reactor, SystemClock};

use crate::client::*;
use crate::server::{TIMEOUT, on_each_backend, with_limits};

#[test]
fn connections_without_work_are_closed() {
    on_each_backend(|server| {
        let mut in_use = server.client();
        let mut in_handshake = server.connect();
        in_handshake.greet(3);
        server.stop();
        assert!(in_use.is_closed() && in_handshake.is_closed());
        assert_eq!([server.end(), server.end()], [DisconnectReason::Stopped, DisconnectReason::Stopped]);
    });
}

#[test]
fn a_removed_export_closes_its_connections() {
    on_each_backend(|server| {
        server.with(|fixture| fixture.exports.insert("second", "", &MemoryVolume::new(1 << 20, 512)));
        let mut client = server.client();
        let mut other = server.connect();
        other.greet(3);
        assert_eq!(other.option_result(OPT_GO, &info("second", &[])), REP_ACK);
        server.with(|fixture| fixture.disk.faults().hold_writes());
        client.write(0, 1, 0, &[1; 512]);
        server.wait_until(|fixture| fixture.disk.faults().held_writes() == 1);
        server.with(|fixture| fixture.disk.withdraw());
        client.request(0, FLUSH, 2, 0, 0);
        server.with(|fixture| fixture.disk.faults().release_writes());
        assert_eq!(client.result(1), 0);
        assert!(client.is_closed());
        drop(client);
        assert_eq!(server.end(), DisconnectReason::Withdrawn);
        other.request(0, FLUSH, 1, 0, 0);
        assert_eq!(other.result(1), 0);
    });
}

#[test]
fn requests_in_flight_are_answered_and_no_more_begin() {
    on_each_backend(|server| {
        let mut client = server.client();
        server.with(|fixture| fixture.disk.faults().hold_writes());
        client.write(0, 1, 0, &[1; 512]);
        client.write(0, 2, 512, &vec![2; 3 << 20]);
        server.wait_until(|fixture| fixture.disk.faults().held_writes() == 5);
        server.stop();
        client.write(0, 3, 0, &[3; 512]);
        server.with(|fixture| fixture.disk.faults().release_writes());
        let mut answered = [client.reply(), client.reply()].map(|reply| reply.cookie());
        answered.sort_unstable();
        assert_eq!(answered, [1, 2]);
        assert!(client.is_closed());
        drop(client);
        assert_eq!(server.end(), DisconnectReason::Stopped);
        assert_eq!(server.with(|fixture| fixture.disk.counters().writes), 5);
    });
}

#[test]
fn replies_arrive_although_requests_were_left_unread() {
    // Closing a TCP connection with unread data discards data that the peer has not received.
    on_each_backend(|server| {
        let mut client = RawClient::tcp(server.address());
        client.negotiate();
        client.write(0, 1, 0, &[1; 1 << 20]);
        assert_eq!(client.result(1), 0);
        server.with(|fixture| fixture.disk.faults().hold_reads());
        for cookie in 0..32 {
            client.request(DF, READ, cookie, 0, 1 << 20);
        }
        server.wait_until(|fixture| fixture.disk.faults().held_reads() == 32);
        server.stop();
        for cookie in 32..1000 {
            client.request(0, FLUSH, cookie, 0, 0);
        }
        server.with(|fixture| fixture.disk.faults().release_reads());
        for _ in 0..32 {
            let reply = client.reply();
            assert!(reply.cookie() < 32);
            let Reply::Data { data, .. } = reply else { panic!("{reply:?}") };
            assert!(data.iter().all(|byte| *byte == 1));
        }
        assert!(client.is_closed());
    });
}

#[test]
fn a_client_that_does_not_read_delays_the_shutdown_briefly() {
    with_limits(&Limits { drain: Duration::from_millis(100), ..Limits::default() }, |server| {
        let mut client = server.client();
        client.write(0, 1, 0, &[1; 1 << 20]);
        assert_eq!(client.result(1), 0);
        for cookie in 0..32 {
            client.request(DF, READ, cookie, 0, 1 << 20);
        }
        server.wait_until(|fixture| fixture.disk.counters().reads == 32);
        server.stop();
        assert_eq!(server.end(), DisconnectReason::DrainTimeout);
    });
}

#[test]
fn a_stalled_client_delays_the_shutdown_briefly() {
    with_limits(&Limits { drain: Duration::from_millis(100), ..Limits::default() }, |server| {
        let mut client = server.client();
        client.send(&request(0, WRITE, 1, 0, 4096));
        client.send(&[1; 100]);
        // The request has been received when a later one has been answered.
        let mut other = server.client();
        assert!(other.read(0, 0, 512).is_ok());
        server.stop();
        let mut ends = [server.end(), server.end()].map(|end| end == DisconnectReason::DrainTimeout);
        ends.sort_unstable();
        assert_eq!(ends, [false, true]);
    });
}

/// The result of a server's shutdown.
struct Report {
    left: usize,
    time: Duration,
}

/// Starts a server on a thread of its own; a message to it shuts it down.
fn start(
    backend: Backend,
    limits: Limits,
    held: bool,
) -> (std::path::PathBuf, tempfile::TempDir, futures_channel::oneshot::Sender<()>, mpsc::Receiver<Report>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let (stop, stopped) = futures_channel::oneshot::channel();
    let (ready, is_ready) = mpsc::channel();
    let (report, reports) = mpsc::channel();
    let at = path.clone();
    std::thread::spawn(move || {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let platform = Platform::new(backend, clock.clone()).unwrap();
        let reactor = Reactor::new(platform.clone(), clock);
        let disk = MemoryVolume::new(1 << 20, 512);
        if held {
            disk.faults().hold_writes();
        }
        let exports = MemoryExports::default();
        exports.insert("disk", "", &disk);
        reactor.run(async {
            let server = NbdServer::new(exports, limits);
            let listener = Listener::bind_unix(&platform, &at, Access::OWNER).unwrap();
            let listening = server.clone();
            reactor.spawn(async move { listening.listen(listener).await }).detach();
            ready.send(()).unwrap();
            stopped.await.unwrap();
            let begun = Instant::now();
            let left = server.shut_down().await;
            report.send(Report { left, time: begun.elapsed() }).unwrap();
            // A connection that is left ends with the reactor.
            if held {
                disk.faults().release_writes();
            }
            while server.connections() > 0 {
                reactor.yield_now().await;
            }
        });
        reactor.shut_down();
    });
    is_ready.recv_timeout(TIMEOUT).unwrap();
    (path, directory, stop, reports)
}

#[test]
fn a_server_stops_listening_and_closes_its_connections() {
    for backend in [Backend::Uring, Backend::Threads] {
        let (path, _directory, stop, reports) = start(backend, Limits::default(), false);
        let mut clients: Vec<RawClient> = (0..10).map(|_| RawClient::unix(&path)).collect();
        clients.iter_mut().for_each(RawClient::negotiate);
        stop.send(()).unwrap();
        for client in &mut clients {
            assert!(client.is_closed());
        }
        drop(clients);
        assert_eq!(reports.recv_timeout(TIMEOUT).unwrap().left, 0);
        let refused = UnixStream::connect(&path).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused));
    }
}

#[test]
fn a_server_does_not_wait_for_a_volume_forever() {
    for backend in [Backend::Uring, Backend::Threads] {
        let drain = Duration::from_millis(50);
        let (path, _directory, stop, reports) = start(backend, Limits { drain, ..Limits::default() }, true);
        let mut client = RawClient::unix(&path);
        client.negotiate();
        client.write(0, 1, 0, &[1; 512]);
        client.request(0, FLUSH, 2, 0, 0);
        // The write has begun when the flush after it has been answered.
        assert_eq!(client.result(2), 0);
        stop.send(()).unwrap();
        assert!(client.is_closed());
        let report = reports.recv_timeout(TIMEOUT).unwrap();
        assert_eq!(report.left, 1);
        assert!(report.time < TIMEOUT / 2);
    }
}

#[test]
fn a_full_server_accepts_no_more() {
    for backend in [Backend::Uring, Backend::Threads] {
        let (path, _directory, stop, _) =
            start(backend, Limits { connections: 2, ..Limits::default() }, false);
        let mut first = RawClient::unix(&path);
        first.negotiate();
        let mut second = RawClient::unix(&path);
        second.negotiate();
        assert!(RawClient::unix(&path).is_closed());
        second.request(0, DISC, 1, 0, 0);
        assert!(second.is_closed());
        // The slot is free once the server has noticed the disconnect.
        let mut third = RawClient::unix(&path);
        while !third.try_greet(3) {
            third = RawClient::unix(&path);
        }
        third.negotiate_greeted();
        stop.send(()).unwrap();
    }
}
