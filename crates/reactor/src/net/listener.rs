//! Listening sockets.
//!
//! Invariant: dropping a listener ends its accept and removes the file of a Unix socket.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};

use super::access::Access;
use super::error::NetError;
use super::stream::Stream;
use super::unix::{BACKLOG, SocketFile, bind_unix};
use crate::operation::{Accepted, Operation};
use crate::target::Target;
use crate::{IoError, IoErrorKind, Platform};

/// A listening socket on one reactor.
pub struct Listener {
    pub(super) socket: Arc<OwnedFd>,
    platform: Rc<Platform>,
    /// The file of a Unix socket, removed on drop.
    file: Option<SocketFile>,
}

impl Listener {
    /// Listens for TCP connections; port 0 selects a free port.
    ///
    /// # Errors
    /// If the address is in use or not an address of this machine.
    pub fn bind_tcp(platform: &Rc<Platform>, address: SocketAddr) -> Result<Self, NetError> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let bind = || {
            let socket = new_socket(family)?;
            // A restarted server can bind its port while old connections are in TIME_WAIT.
            sockopt::set_socket_reuseaddr(&socket, true)?;
            rustix::net::bind(&socket, &address)?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        let failed = |errno| NetError::new(errno, address, "listen on");
        Self::new(platform, bind().map_err(failed)?, None).map_err(failed)
    }

    /// Listens on a Unix socket at `path`, for the users that `access` permits. Replaces a stale
    /// socket file.
    ///
    /// # Errors
    /// As for [`bind_unix`].
    pub fn bind_unix(
        platform: &Rc<Platform>,
        path: impl AsRef<Path>,
        access: Access,
    ) -> Result<Self, NetError> {
        let path = path.as_ref();
        let (socket, file) = bind_unix(path, access)?;
        Self::new(platform, socket, Some(file))
            .map_err(|errno| NetError::new(errno, path.display(), "listen on"))
    }

    fn new(platform: &Rc<Platform>, socket: OwnedFd, file: Option<SocketFile>) -> Result<Self, Errno> {
        let listener = Self { socket: Arc::new(socket), platform: platform.clone(), file };
        match platform.prepare_socket(&listener.socket) {
            Ok(()) => Ok(listener),
            Err(error) => Err(Errno::from_raw_os_error(error.errno())),
        }
    }

    /// Accepts a connection.
    ///
    /// # Errors
    /// If the process or the system has no free descriptor; the listener stays usable.
    pub async fn accept(&self) -> Result<Stream, IoError> {
        loop {
            let accepted: Accepted = Arc::new(Mutex::new(None));
            let operation = Operation::Accept(accepted.clone());
            self.platform.submit_cancellable(Target::Descriptor(self.socket.clone()), operation).await?;
            let connection = accepted.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
            let Some(connection) = connection else {
                unreachable!("an accept succeeded without a connection")
            };
            match Stream::from_fd(&self.platform, connection) {
                // The peer closed the connection before it was accepted: accept the next one.
                Err(error) if error.kind() == IoErrorKind::Closed => {}
                result => return result,
            }
        }
    }

    /// Returns the listening address of a TCP socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        rustix::net::getsockname(&self.socket).ok()?.try_into().ok()
    }

    /// Returns the path of a Unix socket.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(SocketFile::path)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if Arc::strong_count(&self.socket) > 1 {
            // Ends a pending accept, which then closes the descriptor.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }
}

fn new_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}
