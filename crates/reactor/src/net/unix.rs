//! The files of Unix sockets: binding, replacing stale files, removal.
//!
//! Invariants: a socket's file is replaced only if no process listens on it, and removed only by
//! the process that created it; of two processes that bind a path at the same time, one fails.
//! Nothing here waits for another process: a contended path is reported as in use.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::access::Access;
use super::error::{NetError, NetErrorKind};

/// Maximum pending connections; the kernel's own limit is `net.core.somaxconn`, 4096 by default.
pub(super) const BACKLOG: i32 = 4096;

/// The file of a Unix socket. Removed on drop, unless another process has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path) == Ok(self.identity) {
            // The file may already be removed.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Creates a listening socket at `path`, in an existing directory. Replaces a stale socket file.
/// Never blocks.
///
/// # Errors
/// [`NetErrorKind::InUse`] while another process listens or binds there;
/// [`NetErrorKind::NotASocket`] if the path is another kind of file; [`NetErrorKind::PathTooLong`].
pub fn bind_unix(path: &Path, access: Access) -> Result<(OwnedFd, SocketFile), NetError> {
    let failed = |errno| NetError::new(errno, path.display(), "listen on");
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    // Held from the check of the file until the socket listens: a socket that is bound and does not
    // listen yet looks stale to other processes.
    let _lock = BindLock::take(path).map_err(failed)?;
    if is_other_file_type(path).map_err(failed)? {
        return Err(failed(Errno::ADDRINUSE).with_kind(NetErrorKind::NotASocket));
    }
    bind_locked(path, &address, access).map_err(failed)
}

fn bind_locked(
    path: &Path,
    address: &SocketAddrUnix,
    access: Access,
) -> Result<(OwnedFd, SocketFile), Errno> {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file gets the mode of the socket, minus the umask.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    match rustix::net::bind(&socket, address) {
        Err(Errno::ADDRINUSE) if is_stale(address)? => {
            rustix::fs::unlink(path)?;
            rustix::net::bind(&socket, address)?;
        }
        result => result?,
    }
    let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
    access.grant_socket(path)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok((socket, file))
}

fn identity(path: &Path) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::lstat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn is_other_file_type(path: &Path) -> Result<bool, Errno> {
    match rustix::fs::lstat(path) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) != FileType::Socket),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// True if no process listens on the socket file.
fn is_stale(address: &SocketAddrUnix) -> Result<bool, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => Ok(true),
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(errno),
        // Connected, or the listener's backlog is full.
        _ => Ok(false),
    }
}

/// A lock on binding a path: on a file next to it that only this user and root can open. Not on the
/// directory, whose lock any user with read access could hold for ever.
struct BindLock {
    path: PathBuf,
    file: OwnedFd,
}

impl BindLock {
    /// Takes the lock for a socket's path.
    ///
    /// # Errors
    /// `ADDRINUSE` while another process holds the lock.
    fn take(socket: &Path) -> Result<Self, Errno> {
        let mut name = OsString::from(".");
        name.push(socket.file_name().ok_or(Errno::INVAL)?);
        name.push(".lock");
        let path = socket.with_file_name(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
        match rustix::fs::flock(file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(Errno::ADDRINUSE),
            result => result?,
        }
        let stat = rustix::fs::fstat(&file)?;
        // The previous holder has removed the file: the next attempt opens a new one.
        if identity(&path) != Ok((stat.st_dev, stat.st_ino)) {
            return Err(Errno::ADDRINUSE);
        }
        Ok(Self { path, file })
    }
}

impl Drop for BindLock {
    fn drop(&mut self) {
        // Unlinked while locked: a process that already opened the file sees that it has no name
        // any more. A lock file that is left behind is locked by the next process.
        let _ = rustix::fs::unlink(&self.path);
        let _ = rustix::fs::flock(self.file.as_fd(), FlockOperation::Unlock);
    }
}
