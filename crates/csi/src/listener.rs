//! Unix sockets of the driver.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio::net::{UnixListener, UnixStream};

/// Binds a Unix socket for this user only. Replaces the socket of a process that has ended.
///
/// # Errors
/// `AddrInUse` if a process listens on the socket; if the file system refuses.
pub(crate) async fn bind(path: &Path) -> io::Result<UnixListener> {
    if UnixStream::connect(path).await.is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens on the socket"));
    }
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
