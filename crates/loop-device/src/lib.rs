//! Loop devices: files as block devices of this host, as in loop(4).
//!
//! The name of a loop device, such as `/dev/loop0`, is that of any file as soon as another process
//! has detached the device. Every operation therefore works on an open device.
//!
//! Always true: a [`LoopDevice`] keeps its file. If another process detaches the device meanwhile,
//! the kernel completes that when the last user closes the device.

mod requests;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Directory in which the kernel describes its block devices.
const DEVICES: &str = "/sys/block";
/// The device that names free loop devices.
const CONTROL: &str = "/dev/loop-control";
/// Maximum number of attempts to attach a file: another process may take the free device that the
/// kernel named.
const ATTEMPTS: u32 = 100;

/// Properties of a new loop device.
#[derive(Clone, Copy, Debug)]
pub struct LoopOptions {
    /// Size of a logical sector, in bytes.
    pub sector: u32,
    /// The kernel refuses writes.
    pub read_only: bool,
}

/// An open loop device with a file. Requests of the device bypass the page cache of the file if the
/// file permits that.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    device: File,
}

impl LoopDevice {
    /// Attaches a file to a free loop device.
    ///
    /// # Errors
    /// If the file or the device cannot be opened, or the kernel refuses.
    pub fn attach(file: &Path, options: LoopOptions) -> Result<Self> {
        let backing = OpenOptions::new().read(true).write(!options.read_only).open(file)?;
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        for _ in 0..ATTEMPTS {
            let path = PathBuf::from(format!("/dev/loop{}", requests::free_device(&control)?));
            let device = match OpenOptions::new().read(true).write(!options.read_only).open(&path) {
                // Another process has attached its file first, and detaches it now.
                Err(error) if is(&error, Errno::NXIO) => continue,
                device => device?,
            };
            match requests::configure(&device, &backing, file, options) {
                Ok(()) => return Ok(Self { path, device }),
                // Another process has attached its file first.
                Err(Errno::BUSY) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::new(ErrorKind::ResourceBusy, "other processes take all free loop devices"))
    }

    /// Opens a loop device. Returns `None` if it has no file, or does not exist.
    ///
    /// # Errors
    /// If the device cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        // Waits for nothing.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let device = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(device) => device,
            Err(error) if error.kind() == ErrorKind::NotFound || is(&error, Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !device.metadata()?.file_type().is_block_device() {
            return Err(Error::new(ErrorKind::InvalidInput, "it is not a block device"));
        }
        let opened = Self { path: path.to_owned(), device };
        let has_file = opened.attribute("backing_file").is_some();
        Ok(has_file.then_some(opened))
    }

    /// Opens all loop devices of a file, also of an earlier file at this path that was replaced or
    /// whose server has died.
    ///
    /// # Errors
    /// If one of them cannot be opened.
    pub fn all_of(file: &Path) -> Result<Vec<Self>> {
        let mut devices = Vec::new();
        for path in paths_of(file) {
            // The device may have got another file since it was listed.
            devices.extend(Self::open(&path)?.filter(|device| device.has_path(file)));
        }
        Ok(devices)
    }

    /// Returns the path of the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the device reads from the file that has this path now. The device of a file
    /// that was replaced, or whose server was restarted, has the same path and another file.
    #[must_use]
    pub fn reads_from(&self, file: &Path) -> bool {
        let Ok(metadata) = std::fs::metadata(file) else { return false };
        let device = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        // A file whose server has died has no status.
        requests::file_of(&self.device).is_ok_and(|found| found == (device, metadata.ino()))
    }

    /// Gives the device the present size of its file.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn update_size(&self) -> Result<()> {
        Ok(requests::update_size(&self.device)?)
    }

    /// Detaches the device from its file. The kernel completes this when the last user closes the
    /// device; this is at once if there is no other user.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn detach(self) -> Result<()> {
        Ok(requests::detach(&self.device)?)
    }

    fn has_path(&self, file: &Path) -> bool {
        self.attribute("backing_file").is_some_and(|path| path == file.as_os_str().as_bytes())
    }

    /// Returns an attribute of an attached device.
    fn attribute(&self, name: &str) -> Option<Vec<u8>> {
        attribute(self.path.file_name()?, name)
    }
}

/// Returns the paths of the loop devices of a file, for people: they may have another file at any
/// time.
#[must_use]
pub fn paths_of(file: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name()).filter(|name| {
        name.as_bytes().starts_with(b"loop")
            && attribute(name, "backing_file").is_some_and(|path| path == file.as_os_str().as_bytes())
    });
    let mut paths: Vec<_> = names.map(|name| Path::new("/dev").join(name)).collect();
    paths.sort_unstable();
    paths
}

/// Returns an attribute of a loop device that has a file.
fn attribute(device: &OsStr, name: &str) -> Option<Vec<u8>> {
    let value = std::fs::read(Path::new(DEVICES).join(device).join("loop").join(name)).ok()?;
    Some(value.strip_suffix(b"\n").unwrap_or(&value).to_vec())
}

fn is(error: &Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number.raw_os_error())
}

#[cfg(test)]
mod tests;
