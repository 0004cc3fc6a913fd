//! Drives as the engine gets them: opened and locked once, used from every reactor.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use engine::DriveSource;
use reactor::{Drive, DriveHandle, DriveOptions, FileDrive};

use crate::error::Result;
use crate::reactors;

/// An open block device or file.
#[derive(Debug)]
pub(crate) struct OpenDrive {
    handle: DriveHandle,
    path: PathBuf,
}

impl OpenDrive {
    /// Opens and locks a drive. Blocks the thread for a moment if somebody else has it.
    ///
    /// # Errors
    /// See [`reactor::OpenDriveErrorKind`].
    pub(crate) fn open(path: &Path, options: DriveOptions) -> Result<Arc<Self>> {
        let handle = FileDrive::open(path, options)?;
        Ok(Arc::new(Self { handle, path: path.to_owned() }))
    }

    /// The name that it was opened by.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its capacity in bytes.
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

/// The drives as the engine takes them.
pub(crate) fn as_sources(drives: &[Arc<OpenDrive>]) -> Vec<Arc<dyn DriveSource>> {
    drives.iter().map(|drive| drive.clone() as Arc<dyn DriveSource>).collect()
}
