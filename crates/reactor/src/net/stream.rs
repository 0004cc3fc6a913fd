//! Socket connections.
//!
//! Invariants: the descriptor is closed once it has no users; dropping a stream ends its operations
//! in flight. Does not know the protocol.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::error::NetError;
use crate::iovec::SpanCursor;
use crate::operation::{Direction, Operation, SocketTransfer};
use crate::target::Target;
use crate::{Io, IoError, Platform, Reactor, Span};

/// Pause before retrying to connect to a Unix listener with a full backlog.
const QUEUE_PAUSE: Duration = Duration::from_millis(1);

/// The time limit of a poll that does not wait.
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Idle time after which the kernel sends keepalive probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process at this address.
    Tcp(SocketAddr),
    /// A process on this machine.
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => fmt::Display::fmt(address, f),
            Self::Unix => f.write_str("local"),
        }
    }
}

/// A connection on one reactor. One read and one write may be in flight at a time.
///
/// An operation starts when its method is called and continues if its future is dropped; dropping
/// the stream ends it.
pub struct Stream {
    connection: Connection,
    peer: Peer,
    platform: Rc<Platform>,
}

/// A connection detached from its reactor, to be attached to another one.
#[derive(Debug)]
pub struct DetachedStream {
    connection: Connection,
    peer: Peer,
}

/// The descriptor, shared with the operations in flight on it.
#[derive(Debug)]
struct Connection(Arc<OwnedFd>);

impl Drop for Connection {
    fn drop(&mut self) {
        if Arc::strong_count(&self.0) > 1 {
            // Ends the operations in flight, which then close the descriptor. Fails only if the
            // connection is already closed.
            let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
        }
    }
}

impl Stream {
    /// Takes over a connected TCP or Unix socket.
    ///
    /// # Errors
    /// If the socket is not connected.
    pub fn from_fd(platform: &Rc<Platform>, socket: OwnedFd) -> Result<Self, IoError> {
        let peer = match rustix::net::getpeername(&socket)? {
            Some(address) => SocketAddr::try_from(address).map_or(Peer::Unix, Peer::Tcp),
            None => Peer::Unix,
        };
        if let Peer::Tcp(_) = peer {
            // Each write is a whole request or reply: delaying it only adds latency.
            sockopt::set_tcp_nodelay(&socket, true)?;
            enable_keepalive(&socket)?;
        }
        platform.prepare_socket(&socket)?;
        let connection = Connection(Arc::new(socket));
        Ok(Self { connection, peer, platform: platform.clone() })
    }

    /// Connects to a TCP listener.
    ///
    /// # Errors
    /// If no process listens at the address, or it is unreachable.
    pub async fn connect_tcp(platform: &Rc<Platform>, address: SocketAddr) -> Result<Self, NetError> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let stream = connect(platform, family, &address).await;
        stream.map_err(|errno| NetError::new(errno, address, "connect to"))
    }

    /// Connects to a Unix listener.
    ///
    /// # Errors
    /// If no process listens at the path, or it does not exist.
    pub async fn connect_unix(platform: &Rc<Platform>, path: impl AsRef<Path>) -> Result<Self, NetError> {
        let path = path.as_ref();
        let failed = |errno| NetError::new(errno, path.display(), "connect to");
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        connect(platform, AddressFamily::UNIX, &address).await.map_err(failed)
    }

    /// Reads the bytes that are available, up to the length of `into`. Returns their number; 0 at
    /// the end of the stream.
    pub fn read(&self, into: &Span) -> Io {
        if into.is_empty() {
            return Io::ready(Ok(0));
        }
        self.submit(Direction::In, std::slice::from_ref(into), false)
    }

    /// Reads until every span is full. Fails as closed if the stream ends first.
    pub fn read_exact(&self, into: &[Span]) -> Io {
        self.whole(Direction::In, into)
    }

    /// Writes every span, in order.
    pub fn write_all(&self, from: &[Span]) -> Io {
        self.whole(Direction::Out, from)
    }

    /// Ends the stream in the sending direction.
    ///
    /// # Errors
    /// If the connection is already closed.
    pub fn shutdown(&self) -> Result<(), IoError> {
        Ok(rustix::net::shutdown(&self.connection.0, Shutdown::Write)?)
    }

    /// Returns true if the peer has ended the stream in its sending direction, or the connection
    /// has failed. Bytes that it sent before may still be unread.
    pub fn has_peer_closed(&self) -> bool {
        let mut polled = [PollFd::new(&self.connection.0, PollFlags::RDHUP)];
        // An interrupted call has found nothing.
        rustix::event::poll(&mut polled, Some(&NO_WAIT)).is_ok_and(|ready| ready > 0)
    }

    /// Returns the peer.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns the address of this end of a TCP connection.
    pub fn local_address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.connection.0).ok()?.try_into().ok()
    }

    /// Detaches the connection, so that another reactor can attach it.
    ///
    /// # Panics
    /// If an operation is in flight: the bytes that it reads would be lost.
    pub fn detach(self) -> DetachedStream {
        let Self { connection, peer, .. } = self;
        assert_eq!(
            Arc::strong_count(&connection.0),
            1,
            "a connection was handed over with an operation in flight"
        );
        DetachedStream { connection, peer }
    }

    #[cfg(test)]
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.connection.0
    }

    fn whole(&self, direction: Direction, spans: &[Span]) -> Io {
        if spans.iter().all(Span::is_empty) {
            return Io::ready(Ok(0));
        }
        self.submit(direction, spans, true)
    }

    fn submit(&self, direction: Direction, spans: &[Span], whole: bool) -> Io {
        let transfer = SocketTransfer { direction, cursor: SpanCursor::new(spans), whole };
        self.platform
            .submit(Target::Descriptor(self.connection.0.clone()), Operation::SocketTransfer(transfer))
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", self.peer)
    }
}

impl DetachedStream {
    /// Attaches the connection to the reactor of `platform`.
    ///
    /// # Errors
    /// If the blocking mode of the descriptor cannot be set.
    pub fn attach(self, platform: &Rc<Platform>) -> Result<Stream, IoError> {
        let Self { connection, peer } = self;
        platform.prepare_socket(&connection.0)?;
        Ok(Stream { connection, peer, platform: platform.clone() })
    }

    /// Returns a descriptor for use without a reactor. It may be blocking or not.
    ///
    /// # Errors
    /// If the process has no free descriptor.
    pub fn into_descriptor(self) -> Result<OwnedFd, IoError> {
        // The original descriptor is closed with its operations, of which there are none.
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.connection.0, 0)?)
    }

    /// Returns the peer.
    pub fn peer(&self) -> Peer {
        self.peer
    }
}

/// Enables TCP keepalive, to detect a peer that lost power. Without a response, the connection
/// fails one minute after [`KEEPALIVE_IDLE`].
fn enable_keepalive(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(socket, 6)
}

/// Creates a socket and connects it without blocking the reactor.
async fn connect(
    platform: &Rc<Platform>,
    family: AddressFamily,
    address: &impl SocketAddrArg,
) -> Result<Stream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = Arc::new(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?);
    loop {
        match rustix::net::connect(&socket, address) {
            Ok(()) => break,
            // Only Unix sockets return EAGAIN: the listener's backlog is full, and no event reports
            // free room.
            Err(Errno::AGAIN) => Reactor::current().sleep(QUEUE_PAUSE).await,
            Err(Errno::INPROGRESS | Errno::INTR) => {
                platform.ready(&socket, PollFlags::OUT).await.map_err(errno_of)?;
                sockopt::socket_error(&socket)??;
                break;
            }
            Err(errno) => return Err(errno),
        }
    }
    match Arc::try_unwrap(socket) {
        Ok(socket) => Stream::from_fd(platform, socket).map_err(errno_of),
        Err(_) => panic!("an operation that has ended still holds its socket"),
    }
}

fn errno_of(error: IoError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}
