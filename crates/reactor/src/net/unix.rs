//! Files of Unix sockets: binding, replacing one that is left behind, removing.
//!
//! Always true: a socket's file is replaced only if no process listens behind it, and removed only by the process that made
//! it; two processes that start at once cannot both get the name. Nothing here waits for another process: a name that is
//! contended is reported as in use.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::access::Access;
use super::error::{NetError, NetErrorKind};

/// Connections that may wait to be accepted; the kernel's own limit is `net.core.somaxconn`, 4096 by default.
pub(super) const BACKLOG: i32 = 4096;

/// The file of a Unix socket. Dropped, it is removed, unless another process has put its own there.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: (u64, u64),
}

impl SocketFile {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path) == Ok(self.identity) {
            // Somebody else's removal would do as well.
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

/// Makes a socket that listens at `path`, in a directory that exists. A file that a process which is gone left there is
/// replaced. Never blocks.
///
/// # Errors
/// [`NetErrorKind::InUse`] while another process listens there, or binds there at this moment; [`NetErrorKind::NotASocket`]
/// if something else has the name; [`NetErrorKind::PathTooLong`].
pub fn bind_unix(path: &Path, access: Access) -> Result<(OwnedFd, SocketFile), NetError> {
    let failed = |errno| NetError::new(errno, path.display(), "listen on");
    let address = SocketAddrUnix::new(path).map_err(failed)?;
    // From the look at the file until the socket listens, no other process may look: a socket that is bound and does
    // not listen yet looks like one left behind.
    let _lock = BindLock::take(path).map_err(failed)?;
    if is_something_else(path).map_err(failed)? {
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
    // The file gets the socket's own mode, less what the umask takes away.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    match rustix::net::bind(&socket, address) {
        Err(Errno::ADDRINUSE) if is_left_behind(address)? => {
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

fn is_something_else(path: &Path) -> Result<bool, Errno> {
    match rustix::fs::lstat(path) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) != FileType::Socket),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// True if no process listens behind the file of a socket.
fn is_left_behind(address: &SocketAddrUnix) -> Result<bool, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => Ok(true),
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(errno),
        // Connected, or so busy that its queue is full.
        _ => Ok(false),
    }
}

/// The right to bind a name: a lock on a file beside it, which only this user and root can open. Not on the directory: any
/// user who may read that could hold its lock for ever.
struct BindLock {
    path: PathBuf,
    file: OwnedFd,
}

impl BindLock {
    /// Takes the lock for a socket's path.
    ///
    /// # Errors
    /// `ADDRINUSE` while another process has it.
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
        // Whoever had the lock before has removed the file: the next try finds another one.
        if identity(&path) != Ok((stat.st_dev, stat.st_ino)) {
            return Err(Errno::ADDRINUSE);
        }
        Ok(Self { path, file })
    }
}

impl Drop for BindLock {
    fn drop(&mut self) {
        // While it is locked: a process that has opened it sees that it has no name any more. One that stays is locked
        // by the next process.
        let _ = rustix::fs::unlink(&self.path);
        let _ = rustix::fs::flock(self.file.as_fd(), FlockOperation::Unlock);
    }
}
