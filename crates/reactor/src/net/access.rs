//! Rights on Unix sockets and on directories that are made for them.
//!
//! Always true: a socket or directory that this module makes never has wider rights than its [`Access`], not even for a
//! moment, and has exactly those in the end, whatever the umask is. A directory that existed before keeps its rights.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The users who may connect to a socket, or enter a directory: this process's user, or a group as well.
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
    /// If `group` is the number that stands for no group, `u32::MAX`.
    pub fn with_group(group: u32) -> Self {
        Self { group: Some(Gid::from_raw(group)) }
    }

    fn socket_mode(self) -> Mode {
        if self.group.is_some() { Mode::from_raw_mode(0o660) } else { Mode::from_raw_mode(0o600) }
    }

    fn directory_mode(self) -> Mode {
        if self.group.is_some() { Mode::from_raw_mode(0o750) } else { Mode::from_raw_mode(0o700) }
    }

    /// Makes a directory, and those above it that do not exist, with these rights.
    ///
    /// # Errors
    /// When a directory cannot be made, or this process may not give it to the group.
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
        // The umask takes rights away from these; the ones of the group come when the directory is the group's.
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) => Ok(self.grant(path, FileType::Directory, self.directory_mode())?),
            // Not only "exists": a directory of a read-only file system answers differently.
            Err(_) if path.is_dir() => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives the file of a socket that was bound with owner's rights, and does not listen yet, its own.
    pub(super) fn grant_socket(self, path: &Path) -> Result<(), Errno> {
        self.grant(path, FileType::Socket, self.socket_mode())
    }

    /// Gives what this process has just made its group and its mode.
    fn grant(self, path: &Path, kind: FileType, mode: Mode) -> Result<(), Errno> {
        let (file, found) = open_made(path, kind)?;
        let has_group = self.group.is_none_or(|group| group.as_raw() == found.st_gid);
        if has_group && Mode::from_raw_mode(found.st_mode) == mode {
            return Ok(());
        }
        if !has_group {
            rustix::fs::chownat(file.as_fd(), c"", None, self.group, AtFlags::EMPTY_PATH)?;
        }
        // A descriptor that only names a file can be asked to change its mode by this name alone.
        rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
    }
}

/// Opens what this process has just made, without following a link that somebody has put in its place.
fn open_made(path: &Path, kind: FileType) -> Result<(OwnedFd, Stat), Errno> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let found = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(found.st_mode) == kind { Ok((file, found)) } else { Err(Errno::ACCESS) }
}
