//! The API's Unix socket.
//!
//! Invariants: only the daemon's user and the configured group can connect; a stale socket of a
//! dead daemon is replaced, and a socket with a listening process is not; the file is removed when
//! the daemon ends.

use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;

use reactor::{Access, NetError, NetErrorKind, SocketFile, bind_unix};
use tokio::net::UnixListener;

use crate::error::{Error, ErrorKind, Result};

/// The file of a listening socket. It must be dropped before the listener, while no other process
/// can take the name.
pub(crate) struct ApiSocket {
    _file: SocketFile,
}

impl ApiSocket {
    /// Listens at `path`, with access rights `access`. A new directory for the socket gets the
    /// access rights `directory`, since sockets of exports can be in it as well. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// `Busy` if a daemon already serves there; another kind if the socket cannot be created.
    pub(crate) fn bind(path: &Path, access: Access, directory: Access) -> Result<(Self, UnixListener)> {
        let failed = |error: std::io::Error| refusal(path, kind_of(error.kind()), &error);
        directory.make_directories(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
        let (socket, file) = bind_unix(path, access).map_err(|error| explain(path, &error))?;
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
        "choose another path with --socket: up to 107 bytes, in a directory that the daemon can write to",
    )
}

fn explain(path: &Path, error: &NetError) -> Error {
    let kind = match error.kind() {
        NetErrorKind::InUse => {
            let message = format!("a daemon is already serving on {}", path.display());
            return Error::new(ErrorKind::Busy, message)
                .hint("use that daemon, stop it, or start this one with another --socket and --state-dir");
        }
        NetErrorKind::NotASocket => {
            let message = format!("{} already exists and is not a socket", path.display());
            return Error::new(ErrorKind::Busy, message)
                .hint("move it away, or choose another path with --socket");
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
    async fn only_the_owner_can_connect_and_the_file_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/gabion.sock");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        let (socket, _listener) = ApiSocket::bind(&path, Access::OWNER, Access::OWNER).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gabion.sock");
        drop(StdListener::bind(&path).unwrap());
        assert!(path.exists());
        let (first, listener) = ApiSocket::bind(&path, Access::OWNER, Access::OWNER).unwrap();
        let error = ApiSocket::bind(&path, Access::OWNER, Access::OWNER).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.to_string().contains("a daemon is already serving on"), "{error}");
        drop(first);
        // The first listener still serves its connections; the name is free.
        let (_second, _listener) = ApiSocket::bind(&path, Access::OWNER, Access::OWNER).unwrap();
        drop(listener);
        assert!(path.exists());
    }

    #[tokio::test]
    async fn hundreds_can_connect_before_the_first_is_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gabion.sock");
        let (_socket, _listener) = ApiSocket::bind(&path, Access::OWNER, Access::OWNER).unwrap();
        // The kernel's limit can be lower.
        let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let clients = most.trim().parse::<usize>().unwrap().min(1000);
        let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
        let connect = |_| {
            let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
            let kind = rustix::net::SocketType::STREAM;
            let socket =
                rustix::net::socket_with(rustix::net::AddressFamily::UNIX, kind, flags, None).unwrap();
            rustix::net::connect(&socket, &address).map(|()| socket)
        };
        let connected: Result<Vec<_>, _> = (0..clients).map(connect).collect();
        assert_eq!(connected.map(|connected| connected.len()), Ok(clients));
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("precious");
        std::fs::write(&path, "data").unwrap();
        let error = ApiSocket::bind(&path, Access::OWNER, Access::OWNER).err().unwrap();
        assert!(error.to_string().contains("is not a socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
        let long = directory.path().join("x".repeat(200));
        assert_eq!(
            ApiSocket::bind(&long, Access::OWNER, Access::OWNER).err().unwrap().kind(),
            ErrorKind::Invalid
        );
    }
}
