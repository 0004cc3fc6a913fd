//! The API's Unix socket.
//!
//! Always true: only the daemon's user can connect; a socket that a dead daemon left is replaced, one behind which
//! somebody listens is not; the file goes with the daemon.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::UnixListener;

use crate::error::{Error, ErrorKind, Result};

/// The file of a socket that listens. To be dropped before the listener is, while nobody else may take the name.
pub(crate) struct ApiSocket {
    path: PathBuf,
    identity: (u64, u64),
}

impl ApiSocket {
    /// Listens at `path`. Runs inside of tokio.
    ///
    /// # Errors
    /// `Busy` if a daemon serves there already; when the socket cannot be made.
    pub(crate) fn bind(path: &Path) -> Result<(Self, UnixListener)> {
        let failed = |error: io::Error| {
            let kind = match error.kind() {
                io::ErrorKind::PermissionDenied => ErrorKind::Denied,
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => ErrorKind::Invalid,
                _ => ErrorKind::Io,
            };
            Error::new(kind, format!("cannot listen on {}: {error}", path.display()))
                .hint("--socket names another place, of at most 107 bytes, in a directory that the daemon may write in")
        };
        let directory = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(failed)?;
        // Until we listen, nobody else may look at the name: what is bound and does not listen yet looks abandoned.
        let guard = File::open(directory).map_err(failed)?;
        rustix::fs::flock(&guard, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
        remove_abandoned(path, failed)?;
        let socket = listen(path).map_err(failed)?;
        let metadata = std::fs::symlink_metadata(path).map_err(failed)?;
        let listener = StdListener::from(socket);
        let listener =
            listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener)).map_err(failed)?;
        Ok((Self { path: path.to_owned(), identity: (metadata.dev(), metadata.ino()) }, listener))
    }
}

impl Drop for ApiSocket {
    fn drop(&mut self) {
        let still_ours = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino()) == self.identity;
        if std::fs::symlink_metadata(&self.path).is_ok_and(still_ours) {
            // If that fails, the next daemon replaces it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Removes the socket of a daemon that is gone.
fn remove_abandoned(path: &Path, failed: impl Fn(io::Error) -> Error) -> Result<()> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.file_type().is_socket() {
        let message = format!("{} is there already and is no socket", path.display());
        return Err(
            Error::new(ErrorKind::Busy, message).hint("move it away, or give another place with --socket")
        );
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(failed)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(failed(error)),
        // Connected, or so busy that its queue is full.
        _ => Err(Error::new(ErrorKind::Busy, format!("a daemon is already serving on {}", path.display()))
            .hint("use that one, stop it first, or give this one another --socket and --state-dir")),
    }
}

fn listen(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets the socket's own mode, so that there is no moment at which others could connect.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_its_owner_may_connect_and_it_goes_with_the_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/gabion.sock");
        let (socket, _listener) = ApiSocket::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn an_abandoned_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gabion.sock");
        drop(StdListener::bind(&path).unwrap());
        assert!(path.exists());
        let (first, listener) = ApiSocket::bind(&path).unwrap();
        let error = ApiSocket::bind(&path).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("a daemon is already serving on"), "{error}");
        drop(first);
        // The first one still answers those who came to it; the name is free.
        let (_second, _listener) = ApiSocket::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        assert!(ApiSocket::bind(&path).err().unwrap().to_string().contains("is no socket"));
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
        let long = directory.path().join("x".repeat(200));
        assert_eq!(ApiSocket::bind(&long).err().unwrap().kind(), ErrorKind::Invalid);
    }
}
