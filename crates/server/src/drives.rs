//! Open drives for the engine: opened and locked once, used from every reactor.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use engine::DriveSource;
use reactor::{Drive, DriveHandle, DriveOptions, FileDrive};

use crate::drive_health;
use crate::error::Result;
use crate::reactors;

/// An open block device or file.
#[derive(Debug)]
pub(crate) struct OpenDrive {
    handle: DriveHandle,
    path: PathBuf,
    /// The device number of a block device.
    device: Option<u64>,
}

impl OpenDrive {
    /// Opens and locks a drive. Blocks the thread for up to the busy timeout of `options` if
    /// another process holds the drive.
    ///
    /// # Errors
    /// See [`reactor::OpenDriveErrorKind`].
    pub(crate) fn open(path: &Path, options: DriveOptions) -> Result<Arc<Self>> {
        let handle = FileDrive::open(path, options)?;
        let device = drive_health::device_of(path);
        Ok(Arc::new(Self { handle, path: path.to_owned(), device }))
    }

    /// Returns the path that the drive was opened with.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the device number of a block device; `None` for a file.
    pub(crate) fn device(&self) -> Option<u64> {
        self.device
    }

    /// Returns the capacity in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.handle.properties().size
    }
}

impl DriveSource for OpenDrive {
    fn open(&self) -> Rc<dyn Drive> {
        self.handle.open_on(&reactors::platform())
    }

    fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// Converts open drives to the sources of the engine.
pub(crate) fn as_sources(drives: &[Arc<OpenDrive>]) -> Vec<Arc<dyn DriveSource>> {
    drives.iter().map(|drive| drive.clone() as Arc<dyn DriveSource>).collect()
}
