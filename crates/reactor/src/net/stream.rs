//! Connections.
//!
//! Always true: the descriptor is closed once nobody uses it, and a dropped stream makes the operations still in flight
//! on it end. Knows nothing of what is said on it.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::error::NetError;
use crate::iovec::SpanCursor;
use crate::operation::{Direction, Operation, SocketTransfer};
use crate::target::Target;
use crate::{Io, IoError, Platform, Reactor, Span};

/// Pause before a connection is tried again for which a Unix listener's queue had no room.
const QUEUE_PAUSE: Duration = Duration::from_millis(1);

/// Time without a word from the other end after which it is asked whether it still exists.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// Who is at the other end of a connection.
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

/// A connection as one reactor uses it. One read and one write may be in flight at a time.
///
/// Operations start when they are called and go on whatever happens to their futures; dropping the stream ends them.
pub struct Stream {
    connection: Connection,
    peer: Peer,
    platform: Rc<Platform>,
}

/// A connection on its way to another reactor.
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
            // Ends what is in flight, which closes the descriptor then. Fails only if the connection is gone already.
            let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
        }
    }
}

impl Stream {
    /// A connection that was made elsewhere, over TCP or a Unix socket.
    ///
    /// # Errors
    /// When it is not a connected socket.
    pub fn from_fd(platform: &Rc<Platform>, socket: OwnedFd) -> Result<Self, IoError> {
        let peer = match rustix::net::getpeername(&socket)? {
            Some(address) => SocketAddr::try_from(address).map_or(Peer::Unix, Peer::Tcp),
            None => Peer::Unix,
        };
        if let Peer::Tcp(_) = peer {
            // What is written is a whole request or answer: holding it back only adds latency.
            sockopt::set_tcp_nodelay(&socket, true)?;
            watch_over(&socket)?;
        }
        platform.prepare_socket(&socket)?;
        let connection = Connection(Arc::new(socket));
        Ok(Self { connection, peer, platform: platform.clone() })
    }

    /// Connects to a TCP listener.
    ///
    /// # Errors
    /// When nobody listens there, or the address cannot be reached.
    pub async fn connect_tcp(platform: &Rc<Platform>, address: SocketAddr) -> Result<Self, NetError> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let stream = connect(platform, family, &address).await;
        stream.map_err(|errno| NetError::new(errno, address, "connect to"))
    }

    /// Connects to a Unix listener.
    ///
    /// # Errors
    /// When nobody listens there, or the path does not exist.
    pub async fn connect_unix(platform: &Rc<Platform>, path: impl AsRef<Path>) -> Result<Self, NetError> {
        let path = path.as_ref();
        let failed = |errno| NetError::new(errno, path.display(), "connect to");
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        connect(platform, AddressFamily::UNIX, &address).await.map_err(failed)
    }

    /// Reads what comes next, at most what fits. Ends with the number of bytes; 0 if the other end will send no more.
    pub fn read(&self, into: &Span) -> Io {
        if into.is_empty() {
            return Io::ready(Ok(0));
        }
        self.submit(Direction::In, std::slice::from_ref(into), false)
    }

    /// Reads until every span is full. Fails as closed if the other end stops before.
    pub fn read_exact(&self, into: &[Span]) -> Io {
        self.whole(Direction::In, into)
    }

    /// Writes every span, one after the other.
    pub fn write_all(&self, from: &[Span]) -> Io {
        self.whole(Direction::Out, from)
    }

    /// Tells the other end that no more will be written.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub fn shutdown(&self) -> Result<(), IoError> {
        Ok(rustix::net::shutdown(&self.connection.0, Shutdown::Write)?)
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// Lets go of the connection, so that another reactor can take it.
    ///
    /// # Panics
    /// If an operation is in flight: what it reads would be lost.
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
    /// The connection as the reactor of `platform` uses it.
    ///
    /// # Errors
    /// When the descriptor cannot be made fit for it.
    pub fn attach(self, platform: &Rc<Platform>) -> Result<Stream, IoError> {
        let Self { connection, peer } = self;
        platform.prepare_socket(&connection.0)?;
        Ok(Stream { connection, peer, platform: platform.clone() })
    }

    /// A descriptor of the connection, for whoever uses it without a reactor. It may block, or not.
    ///
    /// # Errors
    /// When there is no room for another descriptor.
    pub fn into_descriptor(self) -> Result<OwnedFd, IoError> {
        // The connection's own goes with the operations on it, of which there are none.
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.connection.0, 0)?)
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }
}

/// Has the kernel ask from time to time whether the other end still exists: a machine that lost its power says nothing.
/// Without an answer, the connection fails after [`KEEPALIVE_IDLE`] and a minute.
fn watch_over(socket: &OwnedFd) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(socket, 6)
}

/// Makes a socket and connects it, without ever blocking the reactor.
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
            // Only Unix sockets say so: the listener's queue is full, and nothing tells when it no longer is.
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
