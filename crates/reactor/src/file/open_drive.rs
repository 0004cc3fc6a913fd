//! An open drive as shared by all reactors that use it: its descriptor, properties and options.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::probe::{Alignment, DriveKind};
use crate::DriveProperties;
use crate::target::LockedFile;

/// Options for opening a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveOptions {
    /// Rejects writes, discards and reservations, and permits other readers. Off by default.
    pub read_only: bool,
    /// Bypasses the page cache if the file system supports it. On by default.
    pub direct: bool,
    /// Maximum time to wait for a drive that is in use; half a second by default. A killed process
    /// releases its drives only when the kernel has ended its I/O, and udev opens a device briefly
    /// to probe it.
    pub busy_timeout: Duration,
}

impl Default for DriveOptions {
    fn default() -> Self {
        Self { read_only: false, direct: true, busy_timeout: Duration::from_millis(500) }
    }
}

/// The descriptor of an open drive and its properties.
pub(super) struct OpenDrive {
    pub(super) file: Arc<LockedFile>,
    pub(super) path: PathBuf,
    pub(super) properties: DriveProperties,
    pub(super) alignment: Alignment,
    pub(super) kind: DriveKind,
    /// See [`BoundFile::is_synchronous`](crate::target::BoundFile::is_synchronous).
    pub(super) is_synchronous: bool,
    pub(super) options: DriveOptions,
}
