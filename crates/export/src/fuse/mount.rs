//! Where a file is seen: the mount, and the empty file below it that it is mounted on.
//!
//! Always true: what lies at the place and is not ours is left alone; a mount whose daemon is dead is taken away before the
//! place is used again. Must not know what is served.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use reactor::Access;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

/// What our mounts are, as the table of mounts has it.
const KIND: &str = "fuse.gabion";
/// The kernel's side of FUSE.
const DEVICE: &str = "/dev/fuse";
/// Mounts at one place, one above the other, that are taken away before we give up.
const STACK_MAX: usize = 16;

/// Why a file cannot be served where it should be, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MountErrorKind {
    /// Another process serves there.
    Busy,
    /// Something that is not ours lies there.
    Occupied,
    /// The system does not let us mount.
    Denied,
    /// This kernel has no FUSE.
    Missing,
    /// Anything else.
    Failed,
}

/// A file that cannot be served where it should be.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct MountError {
    kind: MountErrorKind,
    message: String,
}

impl MountError {
    pub(super) fn new(kind: MountErrorKind, message: String) -> Self {
        Self { kind, message }
    }

    fn io(doing: &str, place: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::PermissionDenied => MountErrorKind::Denied,
            _ => MountErrorKind::Failed,
        };
        Self::new(kind, format!("cannot {doing} {}: {error}", place.display()))
    }

    /// The kind, for control flow.
    pub fn kind(&self) -> MountErrorKind {
        self.kind
    }
}

/// A mount that nobody serves yet. Dropped, it is taken away.
pub(super) struct Mount {
    place: PathBuf,
    device: Option<OwnedFd>,
}

impl Mount {
    /// Mounts a file at `place`, whose directory is made with the rights of `access` if it does not exist.
    ///
    /// # Errors
    /// When something is in the way, or the system does not let us.
    pub(super) fn new(place: &Path, access: Access, name: &str, read_only: bool) -> Result<Self, MountError> {
        clear(place)?;
        make_place(place, access)?;
        let mounted = mount(place, name, read_only);
        if mounted.is_err() {
            forget_place(place);
        }
        Ok(Self { place: place.to_owned(), device: Some(mounted?) })
    }

    /// The kernel's end, to be served.
    pub(super) fn take_device(&mut self) -> Option<OwnedFd> {
        self.device.take()
    }

    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Takes the file away from whoever uses it: what they do from now on fails.
    pub(super) fn cut(&self) {
        // Forced, requests that wait in the kernel fail; detached, who has it open keeps a file that fails.
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        if let Err(error) = rustix::mount::unmount(&self.place, flags) {
            // Somebody else has unmounted it.
            tracing::debug!(place = %self.place.display(), %error, "nothing to unmount");
        }
        forget_place(&self.place);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.device.is_some() {
            self.cut();
        }
    }
}

/// Takes away what a daemon that is dead has left at a place.
///
/// # Errors
/// `Busy` when another daemon serves there; `Occupied` when something else is mounted there.
pub fn clear(place: &Path) -> Result<(), MountError> {
    for _ in 0..STACK_MAX {
        let Some(kind) = mounted_at(place)? else { return Ok(()) };
        let shown = place.display();
        if kind != KIND {
            let message = format!("something else is mounted at {shown} ({kind})");
            return Err(MountError::new(MountErrorKind::Occupied, message));
        }
        // Only the connection's end answers this when its daemon is dead.
        if !matches!(rustix::fs::lstat(place), Err(Errno::NOTCONN | Errno::CONNABORTED)) {
            let message = format!("another process serves {shown}");
            return Err(MountError::new(MountErrorKind::Busy, message));
        }
        rustix::mount::unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(|error| {
            MountError::io("unmount what a dead daemon has left at", place, &error.into())
        })?;
        tracing::info!(place = %shown, "what a daemon that is dead had mounted was taken away");
    }
    let message = format!("too much is mounted at {}", place.display());
    Err(MountError::new(MountErrorKind::Failed, message))
}

/// What kind of file system is mounted at a place, if any is.
fn mounted_at(place: &Path) -> Result<Option<String>, MountError> {
    let table = Path::new("/proc/self/mountinfo");
    let text = std::fs::read(table).map_err(|error| MountError::io("read", table, &error))?;
    // The table has real paths; only the directory can be asked for its own when the file below does not answer.
    let place = match (place.parent().map(Path::canonicalize), place.file_name()) {
        (Some(Ok(directory)), Some(name)) => directory.join(name),
        _ => place.to_owned(),
    };
    Ok(find(&text, place.as_os_str().as_bytes()))
}

/// The kind of the last mount at a place, of a table as proc(5) describes it.
fn find(table: &[u8], place: &[u8]) -> Option<String> {
    let of_line = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        if unescape(fields.nth(4)?) != place {
            return None;
        }
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some(String::from_utf8_lossy(kind).into_owned())
    };
    table.split(|byte| *byte == b'\n').filter_map(of_line).next_back()
}

/// Blanks and such are written as three octal digits behind a backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, digits.and_then(|digits| u8::from_str_radix(digits, 8).ok())) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            _ => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

/// Makes the empty file that is mounted on. One that is there already is ours, if it is empty.
fn make_place(place: &Path, access: Access) -> Result<(), MountError> {
    if let Some(directory) = place.parent() {
        access
            .make_directories(directory)
            .map_err(|error| MountError::io("make the directory", directory, &error))?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(place) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let stat =
                rustix::fs::lstat(place).map_err(|error| MountError::io("look at", place, &error.into()))?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size == 0 {
                return Ok(());
            }
            let message = format!("{} is there already, and is not ours", place.display());
            Err(MountError::new(MountErrorKind::Occupied, message))
        }
        Err(error) => Err(MountError::io("make the file", place, &error)),
    }
}

/// Removes the empty file again. Nobody misses it if it is gone, and one that is not empty is not ours.
fn forget_place(place: &Path) {
    let ours = rustix::fs::lstat(place).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size == 0
    });
    if ours && matches!(mounted_at(place), Ok(None)) {
        let _ = std::fs::remove_file(place);
    }
}

/// Mounts; gives the end that is to be served.
fn mount(place: &Path, name: &str, read_only: bool) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let file = FileType::RegularFile.as_raw_mode();
    let options = format!(
        "fd={},rootmode={file:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    );
    let options =
        CString::new(options).map_err(|error| MountError::new(MountErrorKind::Failed, error.to_string()))?;
    let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NOATIME;
    if read_only {
        flags |= MountFlags::RDONLY;
    }
    rustix::mount::mount(name, place, KIND, flags, options.as_c_str()).map_err(|errno| match errno {
        Errno::NODEV => no_fuse(),
        Errno::PERM | Errno::ACCESS => {
            let message = format!("the system does not let this process mount a file at {}", place.display());
            MountError::new(MountErrorKind::Denied, message)
        }
        errno => MountError::io("mount a file at", place, &errno.into()),
    })?;
    Ok(device)
}

fn open_device() -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => no_fuse(),
        errno => MountError::io("open", Path::new(DEVICE), &errno.into()),
    })
}

fn no_fuse() -> MountError {
    MountError::new(MountErrorKind::Missing, format!("this kernel has no FUSE ({DEVICE})"))
}

#[cfg(test)]
#[path = "mount_tests.rs"]
mod tests;
