//! Unix sockets of the driver.
//!
//! Always true: no other user can connect, not even for a moment and whatever the umask is; only
//! the socket of a process that has ended is replaced, never another file.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{UnixListener, UnixStream};

/// Number of connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Binds a Unix socket for this user only. Replaces the socket of a process that has ended.
///
/// # Errors
/// `AddrInUse` if a process listens on the socket; `AlreadyExists` if the path is another file; if
/// the file system refuses.
pub(crate) async fn bind(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).await.is_ok() {
        return Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process listens there: stop it, or choose another path",
        ));
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it is a file, not a socket: move it away, or choose another path",
            ));
        }
        Ok(_) => std::fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets the mode of the socket, minus the umask.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_socket_is_private_and_replaces_only_a_dead_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plugins/driver/csi.sock");
        let listener = bind(&path).await.unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let taken = bind(&path).await.unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let listener = bind(&path).await.unwrap();
        let client = UnixStream::connect(&path).await;
        assert!(client.is_ok() && listener.accept().await.is_ok());
    }

    #[tokio::test]
    async fn a_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("csi.sock");
        std::fs::write(&path, "data").unwrap();
        assert_eq!(bind(&path).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }
}
