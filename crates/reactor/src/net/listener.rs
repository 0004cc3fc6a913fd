//! Sockets that take connections.
//!
//! Always true: a dropped listener ends its accept, and removes the file of a Unix socket.

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

    /// Listens at `path` for connections of this machine's processes, of those users whom `access` admits. A file left
    /// there by a listener that is gone is replaced.
    ///
    /// # Errors
    /// As [`bind_unix`].
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
        self.file.as_ref().map(SocketFile::path)
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

fn new_socket(family: AddressFamily) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}
