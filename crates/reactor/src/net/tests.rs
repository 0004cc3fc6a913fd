//! Tests of sockets on both backends.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::rc::Rc;
use std::sync::Arc;

use super::*;
use crate::testing::{BACKENDS, bytes, on_each_backend, pattern, span_of, start};
use crate::{Buffer, IoErrorKind, Platform, Remote, Span};

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Returns both ends of a TCP connection.
async fn tcp_pair(platform: &Rc<Platform>) -> (Stream, Stream) {
    let listener = Listener::bind_tcp(platform, anywhere()).unwrap();
    let address = listener.local_address().unwrap();
    let client = Stream::connect_tcp(platform, address).await.unwrap();
    assert_eq!(client.peer(), Peer::Tcp(address));
    (client, listener.accept().await.unwrap())
}

async fn read_exact(stream: &Stream, len: usize) -> Vec<u8> {
    let span = Buffer::new(len).span();
    assert_eq!(stream.read_exact(std::slice::from_ref(&span)).await, Ok(len));
    bytes(&span)
}

#[test]
fn bytes_arrive_in_order_over_tcp_and_unix() {
    let directory = tempfile::tempdir().unwrap();
    on_each_backend(async |platform, _| {
        let path = directory.path().join("socket");
        let local = Listener::bind_unix(&platform, &path, Access::OWNER).unwrap();
        assert_eq!((local.path(), local.local_address()), (Some(path.as_path()), None));
        let client = Stream::connect_unix(&platform, &path).await.unwrap();
        let server = local.accept().await.unwrap();
        assert_eq!(server.peer(), Peer::Unix);
        for (client, server) in [(client, server), tcp_pair(&platform).await] {
            assert_eq!(client.write_all(&[span_of(b"ab"), span_of(b""), span_of(b"cde")]).await, Ok(5));
            assert_eq!(read_exact(&server, 4).await, b"abcd");
            let span = Buffer::new(100).span();
            assert_eq!(server.read(&span).await, Ok(1));
            assert_eq!(bytes(&span.slice(0..1)), b"e");
            client.shutdown().unwrap();
            assert_eq!(server.read(&span).await, Ok(0));
            // The other direction is still open.
            assert_eq!(server.write_all(&[span_of(b"yes")]).await, Ok(3));
            assert_eq!(read_exact(&client, 3).await, b"yes");
        }
    });
}

#[test]
fn transfers_larger_than_the_socket_buffer_complete() {
    on_each_backend(async |platform, reactor| {
        let (client, server) = tcp_pair(&platform).await;
        let parts: Vec<_> = (0..1100).map(|seed| pattern(seed, 40_000 + seed as usize)).collect();
        let whole = parts.concat();
        let from: Vec<Span> = parts.iter().map(|part| span_of(part)).collect();
        let writer = reactor.spawn(async move {
            let total: usize = from.iter().map(Span::len).sum();
            assert_eq!(client.write_all(&from).await, Ok(total));
            client
        });
        // Two spans with other lengths than the written ones.
        let into = [Buffer::new(123).span(), Buffer::new(whole.len() - 123).span()];
        assert_eq!(server.read_exact(&into).await, Ok(whole.len()));
        assert!(into.iter().flat_map(bytes).eq(whole));
        writer.await;
    });
}

#[test]
fn a_closed_connection_ends_reads_and_writes() {
    on_each_backend(async |platform, _| {
        let (client, server) = tcp_pair(&platform).await;
        let span = Buffer::zeroed(1 << 20).span();
        assert_eq!(client.write_all(&[span_of(b"abc")]).await, Ok(3));
        drop(client);
        let cut = server.read_exact(&[span.slice(0..4)]).await;
        assert_eq!(cut.unwrap_err().kind(), IoErrorKind::Closed);
        // The first write may still succeed; the peer's reset then closes the connection.
        let failed = loop {
            if let Err(error) = server.write_all(std::slice::from_ref(&span)).await {
                break error;
            }
        };
        assert_eq!(failed.kind(), IoErrorKind::Closed);
    });
}

#[test]
fn dropping_a_stream_ends_its_operations() {
    on_each_backend(async |platform, _| {
        let (client, server) = tcp_pair(&platform).await;
        let span = Buffer::new(10).span();
        let read = server.read(&span);
        drop(server);
        assert_eq!(read.await, Ok(0));
        assert_eq!(client.read(&span).await, Ok(0));
    });
}

#[test]
fn a_dropped_accept_leaves_the_listener_usable() {
    on_each_backend(async |platform, reactor| {
        let listener = Rc::new(Listener::bind_tcp(&platform, anywhere()).unwrap());
        let address = listener.local_address().unwrap();
        for _ in 0..10 {
            let inside = listener.clone();
            let accept = reactor.spawn(async move { inside.accept().await.map(drop) });
            reactor.yield_now().await;
            assert!(accept.cancel().await.is_none());
        }
        let client = Stream::connect_tcp(&platform, address).await.unwrap();
        let server = listener.accept().await.unwrap();
        assert_eq!(client.write_all(&[span_of(b"x")]).await, Ok(1));
        assert_eq!(read_exact(&server, 1).await, b"x");
    });
}

#[test]
fn a_connection_reset_before_accept_is_skipped() {
    on_each_backend(async |platform, _| {
        let listener = Listener::bind_tcp(&platform, anywhere()).unwrap();
        let address = listener.local_address().unwrap();
        let given_up = std::net::TcpStream::connect(address).unwrap();
        rustix::net::sockopt::set_socket_linger(&given_up, Some(std::time::Duration::ZERO)).unwrap();
        drop(given_up);
        let client = Stream::connect_tcp(&platform, address).await.unwrap();
        let server = listener.accept().await.unwrap();
        assert_eq!(client.write_all(&[span_of(b"x")]).await, Ok(1));
        assert_eq!(read_exact(&server, 1).await, b"x");
    });
}

#[test]
fn a_platform_dropped_while_sockets_wait_is_closed_cleanly() {
    for backend in BACKENDS {
        let (platform, reactor) = start(backend);
        let (listener, client, server) = reactor.run(async {
            let listener = Rc::new(Listener::bind_tcp(&platform, anywhere()).unwrap());
            let (client, server) = tcp_pair(&platform).await;
            (listener, client, server)
        });
        let buffer = Buffer::new(100);
        let inside = listener.clone();
        reactor.spawn(async move { inside.accept().await.map(drop) }).detach();
        let read = server.read(&buffer.span());
        let write = client.read(&buffer.span());
        reactor.run(reactor.yield_now());
        reactor.shut_down();
        drop((read, write, listener, client, server, reactor, platform));
        assert_eq!(buffer.as_slice().len(), 100);
    }
}

#[test]
fn a_connection_is_served_by_another_reactor() {
    for backend in BACKENDS {
        let (sender, receiver) = std::sync::mpsc::channel::<Remote>();
        let (stop, stopped) = futures_channel::oneshot::channel::<()>();
        let other = std::thread::spawn(move || {
            let (platform, reactor) = start(backend);
            PLATFORM.set(Some(platform));
            sender.send(reactor.remote()).unwrap();
            reactor.run(stopped).unwrap();
            PLATFORM.set(None);
        });
        let remote = receiver.recv().unwrap();
        let (platform, reactor) = start(backend);
        reactor.run(async {
            for round in 0..20u8 {
                let (client, server) = tcp_pair(&platform).await;
                let detached = server.detach();
                assert!(matches!(detached.peer(), Peer::Tcp(_)));
                let served = remote.call(move || async move {
                    let server = detached.attach(&PLATFORM.with_borrow(Clone::clone).unwrap()).unwrap();
                    let question = read_exact(&server, 3).await;
                    server.write_all(&[span_of(&question), span_of(b"!")]).await
                });
                assert_eq!(client.write_all(&[span_of(&[b'a', b'b', round])]).await, Ok(3));
                assert_eq!(served.await, Ok(Ok(4)));
                assert_eq!(read_exact(&client, 4).await, [b'a', b'b', round, b'!']);
            }
        });
        stop.send(()).unwrap();
        other.join().unwrap();
    }
}

thread_local! {
    static PLATFORM: std::cell::RefCell<Option<Rc<Platform>>> = const { std::cell::RefCell::new(None) };
}

#[test]
#[should_panic(expected = "handed over with an operation in flight")]
fn a_connection_in_use_cannot_be_detached() {
    on_each_backend(async |platform, _| {
        let (_client, server) = tcp_pair(&platform).await;
        let _read = server.read(&Buffer::new(10).span());
        drop(server.detach());
    });
}

#[test]
fn a_detached_connection_works_without_a_reactor() {
    on_each_backend(async |platform, _| {
        let (client, server) = tcp_pair(&platform).await;
        let mut server = std::net::TcpStream::from(server.detach().into_descriptor().unwrap());
        server.set_nonblocking(false).unwrap();
        std::io::Write::write_all(&mut server, b"hello").unwrap();
        assert_eq!(read_exact(&client, 5).await, b"hello");
        drop(server);
        assert_eq!(client.read(&Buffer::new(10).span()).await, Ok(0), "no other reference was left");
    });
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    on_each_backend(async |platform, _| {
        let path = directory.path().join("socket");
        // The standard library's listener leaves its file.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listener = Listener::bind_unix(&platform, &path, Access::OWNER).unwrap();
        let refused = Listener::bind_unix(&platform, &path, Access::OWNER).err().unwrap();
        assert_eq!(refused.kind(), NetErrorKind::InUse);
        assert!(refused.address().ends_with("socket"));
        // The failed bind left the listener intact.
        let client = Stream::connect_unix(&platform, &path).await.unwrap();
        listener.accept().await.unwrap();
        drop((client, listener));
        assert!(!path.exists());
    });
}

#[test]
fn a_locked_directory_does_not_prevent_binding() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("socket");
    // Any user with read access to the directory can do this.
    let directory = std::fs::File::open(home.path()).unwrap();
    rustix::fs::flock(&directory, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let (done, outcome) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(bind_unix(&path, Access::OWNER).map(drop)));
    let bound = outcome.recv_timeout(std::time::Duration::from_secs(20));
    bound.expect("bound while another process has the directory locked").unwrap();
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "neither socket nor lock is left");
}

#[test]
fn concurrent_binds_of_a_path_fail_without_waiting() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("socket");
    let lock = std::fs::File::create(home.path().join(".socket.lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(bind_unix(&path, Access::OWNER).unwrap_err().kind(), NetErrorKind::InUse);
    drop(lock);
    // A stale lock file of a dead process does no harm.
    drop(bind_unix(&path, Access::OWNER).unwrap());
    for _ in 0..50 {
        drop(UnixListener::bind(&path).unwrap());
        let bound: Vec<_> = std::thread::scope(|scope| {
            let bind = || bind_unix(&path, Access::OWNER);
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(bind)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let refused = bound.iter().filter_map(|bound| bound.as_ref().err());
        assert!(refused.clone().all(|error| error.kind() == NetErrorKind::InUse), "{bound:?}");
        assert_eq!(refused.count(), 3, "{bound:?}");
    }
}

#[test]
fn a_file_other_than_a_socket_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    on_each_backend(async |platform, _| {
        let refused = Listener::bind_unix(&platform, &path, Access::OWNER).err().unwrap();
        assert_eq!(refused.kind(), NetErrorKind::NotASocket);
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    });
}

#[test]
fn a_listener_removes_its_own_file_only() {
    let directory = tempfile::tempdir().unwrap();
    on_each_backend(async |platform, _| {
        let path = directory.path().join("socket");
        let listener = Listener::bind_unix(&platform, &path, Access::OWNER).unwrap();
        std::fs::remove_file(&path).unwrap();
        let successor = Listener::bind_unix(&platform, &path, Access::OWNER).unwrap();
        drop(listener);
        assert!(path.exists());
        drop(successor);
        assert!(!path.exists());
    });
}

#[test]
fn failures_map_to_kinds() {
    let directory = tempfile::tempdir().unwrap();
    on_each_backend(async |platform, _| {
        let listener = Listener::bind_tcp(&platform, anywhere()).unwrap();
        let taken = listener.local_address().unwrap();
        assert_eq!(Listener::bind_tcp(&platform, taken).err().unwrap().kind(), NetErrorKind::InUse);
        drop(listener);
        let refused = Stream::connect_tcp(&platform, taken).await.unwrap_err();
        assert_eq!(refused.kind(), NetErrorKind::Refused);
        assert!(refused.to_string().contains(&taken.to_string()), "{refused}");
        // A documentation address, which no host uses.
        let foreign = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 1).into();
        assert_eq!(Listener::bind_tcp(&platform, foreign).err().unwrap().kind(), NetErrorKind::NotFound);
        let missing = directory.path().join("missing");
        let not_found = Stream::connect_unix(&platform, &missing).await.unwrap_err();
        assert_eq!(not_found.kind(), NetErrorKind::NotFound);
        let long = directory.path().join("x".repeat(200));
        let refused = Listener::bind_unix(&platform, long, Access::OWNER).err().unwrap();
        assert_eq!(refused.kind(), NetErrorKind::PathTooLong);
    });
}

#[test]
fn connecting_waits_for_a_full_backlog() {
    let directory = tempfile::tempdir().unwrap();
    on_each_backend(async |platform, reactor| {
        let path = directory.path().join("socket");
        let listener = Listener::bind_unix(&platform, &path, Access::OWNER).unwrap();
        // A backlog of one: the kernel admits one connection more.
        rustix::net::listen(listener_fd(&listener), 0).unwrap();
        let clients: Vec<_> = (0..5)
            .map(|_| {
                let (platform, path) = (platform.clone(), path.clone());
                reactor.spawn(async move { Stream::connect_unix(&platform, &path).await.unwrap() })
            })
            .collect();
        for _ in 0..5 {
            listener.accept().await.unwrap();
        }
        for client in clients {
            client.await;
        }
        drop(listener);
    });
}

#[test]
fn keepalive_is_enabled() {
    on_each_backend(async |platform, _| {
        let (client, server) = tcp_pair(&platform).await;
        for stream in [&client, &server] {
            assert_eq!(rustix::net::sockopt::socket_keepalive(stream.fd()), Ok(true));
            assert_eq!(
                rustix::net::sockopt::tcp_keepidle(stream.fd()),
                Ok(std::time::Duration::from_secs(60))
            );
        }
    });
}

fn listener_fd(listener: &Listener) -> &OwnedFd {
    &listener.socket
}

#[test]
fn readable_waits_for_data() {
    on_each_backend(async |platform, reactor| {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        let event = Arc::new(event);
        let (inside, waiting) = (platform.clone(), event.clone());
        let mut task = reactor.spawn(async move { inside.readable(&waiting).await });
        for _ in 0..100 {
            reactor.yield_now().await;
        }
        assert!(poll_once(&mut task).await.is_none());
        rustix::io::write(&event, &[1, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        assert_eq!(task.await, Ok(()));
        // Still readable: completes at once.
        assert_eq!(platform.readable(&event).await, Ok(()));
        // Dropped: the descriptor is released soon.
        rustix::io::read(&event, &mut [0; 8]).unwrap();
        let waiting = event.clone();
        let inside = platform.clone();
        let task = reactor.spawn(async move { inside.readable(&waiting).await });
        reactor.yield_now().await;
        task.cancel().await;
        while Arc::strong_count(&event) > 1 {
            reactor.yield_now().await;
        }
    });
}

/// Polls a task once.
async fn poll_once<T>(task: &mut crate::Task<T>) -> Option<T> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *task).poll(context) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
