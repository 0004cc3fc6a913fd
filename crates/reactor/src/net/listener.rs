//! Sockets that take connections.
//!
//! Always true: a Unix socket's file is replaced only if nobody listens behind it, and removed only by whom it belongs
//! to. Two processes that start at once cannot both get the name.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::error::NetError;
use super::stream::Stream;
use crate::operation::{Accepted, Operation};
use crate::target::Target;
use crate::{IoError, IoErrorKind, Platform};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A socket that takes connections on one reactor.
pub struct Listener {
    pub(super) socket: Arc<OwnedFd>,
    platform: Rc<Platform>,
    /// The file to be removed with a Unix socket.
    file: Option<SocketFile>,
}

impl Listener {
    /// Listens for TCP connections; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address is taken, or is none of this machine's.
    pub fn bind_tcp(platform: &Rc<Platform>, address: SocketAddr) -> Result<Self, NetError> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let bind = || {
            let socket = new_socket(family)?;
            // A restarted server gets its port back while old connections die down.
            sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &address)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let failed = |errno| NetError::new(errno, address, "listen on");
        Self::new(platform, bind().map_err(failed)?, None).map_err(failed)
    }

    /// Listens for connections of this machine's processes at `path`. A file left there by a listener that is gone is
    /// replaced.
    ///
    /// # Errors
    /// When somebody listens there, or something other than a socket lies there.
    pub fn bind_unix(platform: &Rc<Platform>, path: impl AsRef<Path>) -> Result<Self, NetError> {
        let path = path.as_ref();
        let failed = |errno| NetError::new(errno, path.display(), "listen on");
        let (socket, file) = bind_path(path).map_err(failed)?;
        Self::new(platform, socket, Some(file)).map_err(failed)
    }

    fn new(platform: &Rc<Platform>, socket: OwnedFd, file: Option<SocketFile>) -> Result<Self, Errno> {
        let listener = Self { socket: Arc::new(socket), platform: platform.clone(), file };
        match platform.prepare_socket(&listener.socket) {
            Ok(()) => Ok(listener),
            Err(error) => Err(Errno::from_raw_os_error(error.errno())),
        }
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// When the process or the system has no room for another descriptor; the listener goes on all the same.
    pub async fn accept(&self) -> Result<Stream, IoError> {
        loop {
            let accepted: Accepted = Arc::new(Mutex::new(None));
            let operation = Operation::Accept(accepted.clone());
            self.platform.submit_cancellable(Target::Descriptor(self.socket.clone()), operation).await?;
            let connection = accepted.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
            let Some(connection) = connection else {
                unreachable!("an accept ended well without a connection")
            };
            match Stream::from_fd(&self.platform, connection) {
                // Given up by the other end while it waited: nobody's concern.
                Err(error) if error.kind() == IoErrorKind::Closed => {}
                result => return result,
            }
        }
    }

    /// Where it listens, if that is a TCP address.
    pub fn local_address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok()?.try_into().ok()
    }

    /// Where it listens, if that is a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path.as_path())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if Arc::strong_count(&self.socket) > 1 {
            // Ends an accept that is in flight, which closes the descriptor then.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }
}

/// The file of a Unix socket, which goes with its listener.
struct SocketFile {
    path: PathBuf,
    /// Device and inode: another listener may have put its own there.
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path) == Ok(self.identity) {
            // Somebody else's removal would do as well.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

fn identity(path: &Path) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::lstat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn new_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// A socket that listens at `path`, and its file.
fn bind_path(path: &Path) -> Result<(OwnedFd, SocketFile), Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = new_socket(AddressFamily::UNIX)?;
    // From the look at what is there until we listen, nobody else may look: a bound socket that does not listen yet
    // looks like one left behind.
    let _guard = lock_directory(path)?;
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if is_left_behind(path, &address)? => {
            rustix::fs::unlink(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        result => result?,
    }
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, file))
}

/// Keeps other processes that do the same from the directory of `path`, until the descriptor is closed.
fn lock_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}

/// True if `path` is a socket behind which nobody listens.
fn is_left_behind(path: &Path, address: &SocketAddrUnix) -> Result<bool, Errno> {
    let stat = rustix::fs::lstat(path)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Ok(false);
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(rustix::net::connect(&probe, address) == Err(Errno::CONNREFUSED))
}
