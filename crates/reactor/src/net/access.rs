//! Permissions of Unix sockets and their directories.
//!
//! Invariants: a socket or directory made by this module never has wider permissions than its
//! [`Access`], not even briefly, and ends with exactly the permissions of its [`Access`],
//! independently of the umask. An existing directory keeps its permissions.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The users who may connect to a socket or enter a directory: this process's user, and optionally
/// a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    group: Option<Gid>,
}

impl Access {
    /// This process's user alone: sockets get mode 0600, directories 0700.
    pub const OWNER: Self = Self { group: None };

    /// The members of a group as well: sockets get mode 0660, directories 0750.
    ///
    /// # Panics
    /// If `group` is `u32::MAX`, which stands for no group.
    pub fn with_group(group: u32) -> Self {
        Self { group: Some(Gid::from_raw(group)) }
    }

    fn socket_mode(self) -> Mode {
        if self.group.is_some() { Mode::from_raw_mode(0o660) } else { Mode::from_raw_mode(0o600) }
    }

    fn directory_mode(self) -> Mode {
        if self.group.is_some() { Mode::from_raw_mode(0o750) } else { Mode::from_raw_mode(0o700) }
    }

    /// Creates a directory and its missing parents with these permissions.
    ///
    /// # Errors
    /// If a directory cannot be created, or this process may not assign it to the group.
    pub fn make_directories(self, path: &Path) -> io::Result<()> {
        match self.make_directory(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let above = path.parent().filter(|above| !above.as_os_str().is_empty());
                self.make_directories(above.ok_or(error)?)?;
                self.make_directory(path)
            }
            result => result,
        }
    }

    fn make_directory(self, path: &Path) -> io::Result<()> {
        // The umask may remove permissions; those of the group are added after the directory is
        // assigned to it.
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) => Ok(self.grant(path, FileType::Directory, self.directory_mode())?),
            // Not only for EEXIST: a read-only file system returns another error.
            Err(_) if path.is_dir() => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sets the final permissions of a socket's file, which was bound with the owner's only and
    /// does not listen yet.
    pub(super) fn grant_socket(self, path: &Path) -> Result<(), Errno> {
        self.grant(path, FileType::Socket, self.socket_mode())
    }

    /// Sets the group and mode of a file that this process has just created.
    fn grant(self, path: &Path, kind: FileType, mode: Mode) -> Result<(), Errno> {
        let (file, found) = open_created(path, kind)?;
        let has_group = self.group.is_none_or(|group| group.as_raw() == found.st_gid);
        if has_group && Mode::from_raw_mode(found.st_mode) == mode {
            return Ok(());
        }
        if !has_group {
            rustix::fs::chownat(file.as_fd(), c"", None, self.group, AtFlags::EMPTY_PATH)?;
        }
        // An O_PATH descriptor supports a change of mode only through this path.
        rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
    }
}

/// Opens a file that this process has just created, without following a symbolic link put in its
/// place.
fn open_created(path: &Path, kind: FileType) -> Result<(OwnedFd, Stat), Errno> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) == kind { Ok((file, found)) } else { Err(Errno::ACCESS) }
}
