//! The mount of a file, and the node below that it is mounted on.
//!
//! Always true: files and mounts of others are left alone; a mount of a daemon that died is removed
//! before its place is used again; while nothing is mounted on the node, it cannot be opened. Must
//! not know the contents of the file.

use std::collections::BTreeSet;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use reactor::Access;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use super::dead_loops::detach_dead_loops;
use crate::host_users::unescape;

/// The file system type of our mounts in the table of mounts.
const KIND: &str = "fuse.gabion";
/// The device through which FUSE is served.
const DEVICE: &str = "/dev/fuse";
/// The most stale mounts at one place, stacked on each other, that are removed.
const STACK_MAX: usize = 16;

/// The reason why a file cannot be mounted, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MountErrorKind {
    /// Another process serves there.
    Busy,
    /// Another file or mount is in the place.
    Occupied,
    /// The system denies the mount.
    Denied,
    /// The kernel has no FUSE.
    Missing,
    /// Any other error.
    Failed,
}

/// A file that cannot be mounted.
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

/// A mount that is not served yet. It is unmounted when dropped.
pub(super) struct Mount {
    place: PathBuf,
    device: Option<OwnedFd>,
}

impl Mount {
    /// Mounts a file at `place`. Creates its directory with the rights of `access` if it does not
    /// exist.
    ///
    /// # Errors
    /// When the place is taken, or the system denies it.
    pub(super) fn new(place: &Path, access: Access, name: &str, read_only: bool) -> Result<Self, MountError> {
        let made = reserve_place(place, access)?;
        let mounted = mount(place, name, read_only);
        if mounted.is_err() && made {
            release_place(place);
        }
        Ok(Self { place: place.to_owned(), device: Some(mounted?) })
    }

    /// Takes the device, to serve it.
    pub(super) fn take_device(&mut self) -> Option<OwnedFd> {
        self.device.take()
    }

    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Unmounts the file even if it is in use: later requests of its users fail. The node below
    /// stays, and cannot be opened.
    pub(super) fn cut(&self) {
        // FORCE fails requests that wait in the kernel; DETACH leaves users with an open file that
        // fails.
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        if let Err(error) = rustix::mount::unmount(&self.place, flags) {
            // It is unmounted already.
            tracing::debug!(place = %self.place.display(), %error, "nothing to unmount");
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.device.is_some() {
            self.cut();
            release_place(&self.place);
        }
    }
}

/// Makes sure that nothing can be written at a place until a file is mounted there: removes the
/// mount of a daemon that died, and creates a node that cannot be opened. Returns true if there was
/// no node.
///
/// # Errors
/// As `clear`; `Occupied` when the place holds another file.
pub fn reserve_place(place: &Path, access: Access) -> Result<bool, MountError> {
    clear(place)?;
    make_place(place, access)
}

/// Removes the mounts of a daemon that died, and the loop devices of their files.
///
/// # Errors
/// `Busy` when another daemon serves there; `Occupied` when another file system is mounted there.
fn clear(place: &Path) -> Result<(), MountError> {
    for _ in 0..STACK_MAX {
        let Some(kind) = mounted_at(place)? else { return Ok(()) };
        let shown = place.display();
        if kind != KIND {
            let message = format!("a file system of type {kind} is mounted at {shown}");
            return Err(MountError::new(MountErrorKind::Occupied, message));
        }
        if !is_dead(place) {
            let message = format!("another process serves {shown}");
            return Err(MountError::new(MountErrorKind::Busy, message));
        }
        detach_dead_loops(&canonical_place(place));
        rustix::mount::unmount(place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)
            .map_err(|error| MountError::io("unmount the stale mount at", place, &error.into()))?;
        tracing::info!(place = %shown, "removed a stale mount of a daemon that died");
    }
    let message = format!("too many stale mounts at {}", place.display());
    Err(MountError::new(MountErrorKind::Failed, message))
}

/// Returns true if the daemon of the mount at a place died. The kernel must ask the daemon: it
/// keeps attributes for a while, also those of a file that nobody serves any more.
fn is_dead(place: &Path) -> bool {
    let flags = AtFlags::STATX_FORCE_SYNC | AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(rustix::fs::CWD, place, flags, StatxFlags::BASIC_STATS);
    matches!(found, Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// Removes the mounts below a directory whose daemon died, except at the places of `kept` exports,
/// and the nodes below them: a daemon that died between the mount and the record of a new export
/// leaves them behind.
pub(super) fn clear_forgotten(directory: &Path, kept: &[PathBuf]) -> Result<(), MountError> {
    let Ok(directory) = directory.canonicalize() else { return Ok(()) };
    let kept: Vec<PathBuf> = kept.iter().map(|place| canonical_place(place)).collect();
    for place in places_below(&mount_table()?, &directory) {
        if kept.contains(&place) {
            continue;
        }
        match clear(&place) {
            Ok(()) => release_place(&place),
            // Another daemon serves there.
            Err(error) if error.kind() == MountErrorKind::Busy => {}
            Err(error) => tracing::warn!(%error, "a mount of a daemon that died stays"),
        }
    }
    Ok(())
}

/// Returns the places of our mounts below a directory in a table as in proc(5).
fn places_below(table: &[u8], directory: &Path) -> BTreeSet<PathBuf> {
    let ours = mounts(table).filter(|(_, kind)| *kind == KIND.as_bytes());
    let places = ours.map(|(place, _)| PathBuf::from(OsString::from_vec(place)));
    places.filter(|place| place != directory && place.starts_with(directory)).collect()
}

fn mount_table() -> Result<Vec<u8>, MountError> {
    let table = Path::new("/proc/self/mountinfo");
    std::fs::read(table).map_err(|error| MountError::io("read", table, &error))
}

/// Returns a place as the table of mounts has it. Only the directory can be canonicalised when the
/// file itself does not respond.
fn canonical_place(place: &Path) -> PathBuf {
    match (place.parent().map(Path::canonicalize), place.file_name()) {
        (Some(Ok(directory)), Some(name)) => directory.join(name),
        _ => place.to_owned(),
    }
}

/// Returns the type of the file system that is mounted at a place, if any.
fn mounted_at(place: &Path) -> Result<Option<String>, MountError> {
    Ok(find(&mount_table()?, canonical_place(place).as_os_str().as_bytes()))
}

/// Returns the type of the last mount at a place in a table as in proc(5).
fn find(table: &[u8], place: &[u8]) -> Option<String> {
    let here = mounts(table).filter(|(mounted, _)| mounted == place);
    here.last().map(|(_, kind)| String::from_utf8_lossy(kind).into_owned())
}

/// Returns the place and type of each mount in a table as in proc(5).
fn mounts(table: &[u8]) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        let place = unescape(fields.nth(4)?);
        let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
        Some((place, kind))
    })
}

/// Creates the node that is mounted on, if it does not exist. No user can open it, not even root: a
/// write while nothing is mounted fails, instead of filling a file that the next mount hides.
/// Returns true if the node was created.
fn make_place(place: &Path, access: Access) -> Result<bool, MountError> {
    if let Some(directory) = place.parent() {
        access
            .make_directories(directory)
            .map_err(|error| MountError::io("make the directory", directory, &error))?;
    }
    match PlaceNode::at(place) {
        Ok(PlaceNode::Ours) => return Ok(false),
        // Earlier releases mounted on an empty file.
        Ok(PlaceNode::EmptyFile) => std::fs::remove_file(place)
            .map_err(|error| MountError::io("replace the empty file", place, &error))?,
        Ok(PlaceNode::Nothing) => {}
        Ok(PlaceNode::SomethingElse) => {
            let message = format!("{} exists and was not created by this program", place.display());
            return Err(MountError::new(MountErrorKind::Occupied, message));
        }
        Err(error) => return Err(MountError::io("look at", place, &error)),
    }
    // A socket without rights: it cannot be opened (ENXIO) or connected to.
    let made = rustix::fs::mknodat(rustix::fs::CWD, place, FileType::Socket, Mode::empty(), 0);
    made.map(|()| true).map_err(|errno| MountError::io("make", place, &errno.into()))
}

/// The file at a place without a mount.
enum PlaceNode {
    Nothing,
    Ours,
    EmptyFile,
    SomethingElse,
}

impl PlaceNode {
    fn at(place: &Path) -> io::Result<Self> {
        let stat = match rustix::fs::lstat(place) {
            Err(Errno::NOENT) => return Ok(Self::Nothing),
            stat => stat?,
        };
        let rights = Mode::from_raw_mode(stat.st_mode);
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket if rights.is_empty() => Self::Ours,
            FileType::RegularFile if stat.st_size == 0 => Self::EmptyFile,
            _ => Self::SomethingElse,
        })
    }
}

/// Removes the node, unless something is mounted on it.
pub fn release_place(place: &Path) {
    if matches!(mounted_at(place), Ok(None)) && matches!(PlaceNode::at(place), Ok(PlaceNode::Ours)) {
        let _ = std::fs::remove_file(place);
    }
}

/// Mounts the file. Returns the device, to be served.
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
            let message = format!("permission denied: cannot mount a file at {}", place.display());
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
