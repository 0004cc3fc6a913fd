//! Opens a drive once for all reactors that use it.
//!
//! Owns the handle and its lock. Invariants: while a writable handle exists, no other process that
//! honours the lock has the drive open; every property is read from the open descriptor, not from
//! the path.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::drive::FileDrive;
use super::error::{OpenDriveError, OpenDriveErrorKind as Kind};
use super::open_drive::{DriveOptions, OpenDrive};
use super::probe::{self, Alignment, DriveKind};
use crate::target::LockedFile;
use crate::{ALIGNMENT, DriveProperties, Platform};

/// Pause between two attempts to open a drive that is in use.
const PAUSE: Duration = Duration::from_millis(10);

/// An open drive, for any thread: each reactor makes its own [`FileDrive`] from it. Closed and
/// unlocked when the last handle and the last drive are dropped.
#[derive(Clone)]
pub struct DriveHandle {
    pub(super) opened: Arc<OpenDrive>,
}

impl FileDrive {
    /// Opens and locks a block device or a regular file. Blocks the thread for up to
    /// [`DriveOptions::busy_timeout`].
    ///
    /// # Errors
    /// See [`OpenDriveErrorKind`](crate::OpenDriveErrorKind).
    pub fn open(path: impl AsRef<Path>, options: DriveOptions) -> Result<DriveHandle, OpenDriveError> {
        let path = path.as_ref();
        let failed = |operation| move |errno| OpenDriveError::from_errno(errno, path, operation);
        let found = rustix::fs::stat(path).map_err(failed("open"))?;
        let kind = DriveKind::of(&found).ok_or_else(|| OpenDriveError::new(Kind::NotADrive, path, "open"))?;
        let (fd, direct) = open_locked(path, kind, options).map_err(failed("open"))?;
        let stat = rustix::fs::fstat(&fd).map_err(failed("examine"))?;
        if DriveKind::of(&stat) != Some(kind) {
            return Err(OpenDriveError::new(Kind::NotADrive, path, "open"));
        }
        // The kernel opens a write-protected device for writing and then fails each write.
        if !options.read_only && kind == DriveKind::BlockDevice && probe::is_write_protected(&stat) {
            return Err(OpenDriveError::new(Kind::ReadOnly, path, "open"));
        }
        let alignment = direct.unwrap_or(Alignment::NONE);
        let properties = match kind {
            DriveKind::BlockDevice => {
                probe::device_properties(fd.as_fd(), &stat).map_err(failed("examine"))?
            }
            DriveKind::File => probe::file_properties(fd.as_fd(), &stat, alignment, !options.read_only),
        };
        check_properties(&properties).map_err(|kind| OpenDriveError::new(kind, path, "use"))?;
        let options = DriveOptions { direct: direct.is_some(), ..options };
        let file = Arc::new(LockedFile::new(fd));
        let is_synchronous = kind == DriveKind::BlockDevice && probe::is_memory(&stat);
        let path = path.to_owned();
        let opened = OpenDrive { file, path, properties, alignment, kind, is_synchronous, options };
        Ok(DriveHandle { opened: Arc::new(opened) })
    }
}

impl DriveHandle {
    /// Opens the drive on the reactor of `platform`.
    pub fn open_on(&self, platform: &Rc<Platform>) -> Rc<FileDrive> {
        Rc::new(FileDrive::new(self.opened.clone(), platform.clone()))
    }

    /// Returns the path that the drive was opened by.
    pub fn path(&self) -> &Path {
        &self.opened.path
    }

    /// Returns the drive's properties.
    pub fn properties(&self) -> DriveProperties {
        self.opened.properties
    }

    /// False if reads and writes go through the page cache, by option or because the file system
    /// requires it.
    pub fn is_direct(&self) -> bool {
        self.opened.options.direct
    }

    /// True if it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.opened.options.read_only
    }

    /// True for a block device, false for a file.
    pub fn is_block_device(&self) -> bool {
        self.opened.kind == DriveKind::BlockDevice
    }
}

impl fmt::Debug for DriveHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriveHandle({})", self.opened.path.display())
    }
}

/// Creates a file of `size` bytes for use as a drive. Its blocks are allocated when they are
/// written or reserved.
///
/// # Errors
/// If the file exists or cannot be created.
pub fn create_file(path: impl AsRef<Path>, size: u64) -> Result<(), OpenDriveError> {
    let path = path.as_ref();
    let failed = |errno| OpenDriveError::from_errno(errno, path, "create");
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let sized = rustix::fs::ftruncate(&fd, size).and_then(|()| rustix::fs::fsync(&fd));
    if let Err(errno) = sized {
        // The incomplete file is of no use.
        let _ = rustix::fs::unlink(path);
        return Err(failed(errno));
    }
    Ok(())
}

/// Opens the descriptor, for direct I/O if requested and supported; then also returns its
/// alignment.
fn open_descriptor(
    path: &Path,
    kind: DriveKind,
    options: DriveOptions,
) -> Result<(OwnedFd, Option<Alignment>), Errno> {
    let access = if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    // On a block device, O_EXCL fails if the device or a part of it is mounted.
    let exclusive = match kind {
        DriveKind::BlockDevice if !options.read_only => OFlags::EXCL,
        _ => OFlags::empty(),
    };
    let flags = access | exclusive | OFlags::CLOEXEC;
    if options.direct {
        match rustix::fs::open(path, flags | OFlags::DIRECT, Mode::empty()) {
            Ok(fd) => {
                if let Some(alignment) = probe::direct_alignment(fd.as_fd()) {
                    return Ok((fd, Some(alignment)));
                }
            }
            Err(Errno::INVAL) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok((rustix::fs::open(path, flags, Mode::empty())?, None))
}

/// Opens and locks the descriptor, waiting while it is in use.
fn open_locked(
    path: &Path,
    kind: DriveKind,
    options: DriveOptions,
) -> Result<(OwnedFd, Option<Alignment>), Errno> {
    let start = Instant::now();
    loop {
        let opened = open_descriptor(path, kind, options);
        let locked = opened.and_then(|opened| lock(&opened.0, options.read_only).map(|()| opened));
        match locked {
            Err(Errno::BUSY | Errno::AGAIN) if start.elapsed() < options.busy_timeout => {
                std::thread::sleep(PAUSE)
            }
            result => return result,
        }
    }
}

fn lock(fd: &OwnedFd, read_only: bool) -> Result<(), Errno> {
    let operation = match read_only {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::fs::flock(fd, operation)
}

fn check_properties(properties: &DriveProperties) -> Result<(), Kind> {
    if properties.logical_sector as usize > ALIGNMENT {
        return Err(Kind::LargeSectors);
    }
    if properties.size == 0 {
        return Err(Kind::Empty);
    }
    Ok(())
}
