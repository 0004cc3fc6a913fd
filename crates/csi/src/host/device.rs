//! Block devices by number.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::blocking::blocking;
use super::error::HostError;

/// Major and minor number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl DeviceNumber {
    /// Returns the number of the block device at `path`; `None` if there is none.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(path).ok()?;
        let number = metadata.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        metadata.file_type().is_block_device().then_some(Self { major, minor })
    }

    /// Returns the path of the device; `None` if the device does not exist any more.
    pub(crate) fn path(self) -> Option<PathBuf> {
        let link = std::fs::read_link(format!("/sys/dev/block/{}:{}", self.major, self.minor)).ok()?;
        let path = Path::new("/dev").join(link.file_name()?);
        (Self::of(&path) == Some(self)).then_some(path)
    }
}

/// Returns the size of a block device in bytes.
///
/// # Errors
/// If it cannot be opened.
pub(crate) fn size(path: &Path) -> Result<u64, HostError> {
    let mut device = File::open(path).map_err(HostError::at(path, "open the device"))?;
    device.seek(SeekFrom::End(0)).map_err(HostError::at(path, "find the size of the device"))
}

/// Makes all writes to a block device durable. Other calls proceed meanwhile.
///
/// # Errors
/// If the device cannot be opened, or fails.
pub(crate) async fn flush(path: &Path) -> Result<(), HostError> {
    let device = File::options().write(true).open(path).map_err(HostError::at(path, "open the device"))?;
    blocking(move || device.sync_all()).await.map_err(HostError::at(path, "flush the device"))
}
