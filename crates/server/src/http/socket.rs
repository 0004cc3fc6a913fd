//! The API's Unix socket.
//!
//! Always true: only the daemon's user can connect; a socket that a dead daemon left is replaced, one behind which
//! a process listens is not; the file goes with the daemon.

use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;

use reactor::{Access, NetError, NetErrorKind, SocketFile, bind_unix};
use tokio::net::UnixListener;

use crate::error::{Error, ErrorKind, Result};

/// The file of a socket that listens. To be dropped before the listener is, while no other process may take the name.
pub(crate) struct ApiSocket {
    _file: SocketFile,
}

impl ApiSocket {
    /// Listens at `path`. The socket is the daemon's user's alone; a directory that is made for it is `directory`'s, since
    /// sockets of exports may lie there as well. Runs inside of tokio.
    ///
    /// # Errors
    /// `Busy` if a daemon serves there already; when the socket cannot be made.
    pub(crate) fn bind(path: &Path, directory: Access) -> Result<(Self, UnixListener)> {
        let failed = |error: std::io::Error| refusal(path, kind_of(error.kind()), &error);
        directory.make_directories(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        let (socket, file) = bind_unix(path, Access::OWNER).map_err(|error| explain(path, &error))?;
        let listener = StdListener::from(socket);
        let listener =
            listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener)).map_err(failed)?;
        Ok((Self { _file: file }, listener))
    }
}

fn kind_of(kind: std::io::ErrorKind) -> ErrorKind {
    match kind {
        std::io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Io,
    }
}

fn refusal(path: &Path, kind: ErrorKind, reason: &dyn std::fmt::Display) -> Error {
    Error::new(kind, format!("cannot listen on {}: {reason}", path.display())).hint(
        "--socket names another place, of at most 107 bytes, in a directory that the daemon may write in",
    )
}

fn explain(path: &Path, error: &NetError) -> Error {
    let kind = match error.kind() {
        NetErrorKind::InUse => {
            let message = format!("a daemon is already serving on {}", path.display());
            return Error::new(ErrorKind::Busy, message)
                .hint("use that one, stop it first, or give this one another --socket and --state-dir");
        }
        NetErrorKind::NotASocket => {
            let message = format!("{} is there already and is no socket", path.display());
            return Error::new(ErrorKind::Busy, message)
                .hint("move it away, or give another place with --socket");
        }
        NetErrorKind::Denied => ErrorKind::Denied,
        NetErrorKind::PathTooLong => ErrorKind::Invalid,
        _ => ErrorKind::Io,
    };
    match std::error::Error::source(error) {
        Some(source) => refusal(path, kind, source),
        None => refusal(path, kind, error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[tokio::test]
    async fn only_its_owner_may_connect_and_it_goes_with_the_daemon() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/gabion.sock");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        let (socket, _listener) = ApiSocket::bind(&path, Access::OWNER).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn an_abandoned_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gabion.sock");
        drop(StdListener::bind(&path).unwrap());
        assert!(path.exists());
        let (first, listener) = ApiSocket::bind(&path, Access::OWNER).unwrap();
        let error = ApiSocket::bind(&path, Access::OWNER).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("a daemon is already serving on"), "{error}");
        drop(first);
        // The first one still answers those who came to it; the name is free.
        let (_second, _listener) = ApiSocket::bind(&path, Access::OWNER).unwrap();
        drop(listener);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        let error = ApiSocket::bind(&path, Access::OWNER).err().unwrap();
        assert!(error.to_string().contains("is no socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
        let long = directory.path().join("x".repeat(200));
        assert_eq!(ApiSocket::bind(&long, Access::OWNER).err().unwrap().kind(), ErrorKind::Invalid);
    }
}
