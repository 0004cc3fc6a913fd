//! Unix sockets of the driver.
//!
//! Always true: no other user can connect, not even for a moment and whatever the umask is; only
//! the socket of a process that has ended is replaced, never another file.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::Path;

use tokio::net::{UnixListener, UnixStream};

/// Binds a Unix socket for this user only. Replaces the socket of a process that has ended.
///
/// # Errors
/// `AddrInUse` if a process listens on the socket; `AlreadyExists` if the path is another file; if
/// the file system refuses.
pub(crate) async fn bind(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).await.is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on the socket"));
    }
    let directory = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path is a file, not a socket"));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A socket gets its mode after 'bind' has made it. Nobody else can enter this directory.
    let mut private = path.file_name().unwrap_or_default().to_owned();
    private.push(".new");
    let private = directory.join(private);
    // A process that was killed in here has left it.
    let _ = std::fs::remove_file(private.join("s"));
    let _ = std::fs::remove_dir(&private);
    DirBuilder::new().mode(0o700).create(&private)?;
    let bound = bind_in(&private, path);
    let removed = std::fs::remove_dir(&private);
    let listener = bound?;
    removed?;
    Ok(listener)
}

/// Binds a socket in the directory `private`, and moves it to `path`.
fn bind_in(private: &Path, path: &Path) -> io::Result<UnixListener> {
    let socket = private.join("s");
    let listener = UnixListener::bind(&socket)?;
    let moved = std::fs::set_permissions(&socket, Permissions::from_mode(0o600))
        .and_then(|()| std::fs::rename(&socket, path));
    if let Err(error) = moved {
        // The error of the move is the one that matters.
        let _ = std::fs::remove_file(&socket);
        return Err(error);
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
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
        let left = path.parent().unwrap().join("csi.sock.new");
        std::fs::create_dir(&left).unwrap();
        drop(UnixListener::bind(left.join("s")).unwrap());
        let listener = bind(&path).await.unwrap();
        let client = UnixStream::connect(&path).await;
        assert!(client.is_ok() && listener.accept().await.is_ok());
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
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
