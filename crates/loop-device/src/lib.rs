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
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// Directory in which the kernel describes its block devices.
const DEVICES: &str = "/sys/block";
/// The device that names free loop devices.
const CONTROL: &str = "/dev/loop-control";
/// The path that the kernel shows for a file without one.
const NO_PATH: &str = "/";
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
        let writable = !options.read_only;
        let backing = OpenOptions::new().read(true).write(writable).open(file).map_err(at(file))?;
        let control = Path::new(CONTROL);
        let control_device = OpenOptions::new().read(true).write(true).open(control).map_err(at(control))?;
        for _ in 0..ATTEMPTS {
            let number = requests::free_device(&control_device).map_err(at(control))?;
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = match OpenOptions::new().read(true).write(writable).open(&path) {
                // Another process has attached its file first, and detaches it now.
                Err(error) if is(&error, Errno::NXIO) => continue,
                device => device.map_err(at(&path))?,
            };
            match requests::configure(&device, &backing, file, options) {
                Ok(()) => {
                    // Some kernels mount no device that is open for writing.
                    let reader = File::open(&path).map_err(at(&path))?;
                    return Ok(Self { path, device: reader });
                }
                // Another process has attached its file first.
                Err(Errno::BUSY) => {}
                Err(error) => return Err(at(&path)(error)),
            }
        }
        Err(at(control)(Error::new(
            ErrorKind::ResourceBusy,
            "other processes take all free loop devices; try again",
        )))
    }

    /// Opens a loop device. Returns `None` if it has no file.
    ///
    /// # Errors
    /// If the device cannot be opened.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let device = match File::open(path) {
            // The kernel completes a detachment.
            Err(error) if is(&error, Errno::NXIO) => return Ok(None),
            device => device?,
        };
        if !device.metadata()?.file_type().is_block_device() {
            return Err(Error::new(ErrorKind::InvalidInput, "it is not a block device"));
        }
        // From here on, the device keeps the file that it has. The file of a server that died has
        // another error.
        let has_file = !matches!(requests::status(&device), Err(Errno::NXIO));
        Ok(has_file.then_some(Self { path: path.to_owned(), device }))
    }

    /// Opens a loop device if it is one of this file, as [`LoopDevice::is_of`] defines it.
    ///
    /// # Errors
    /// If the device cannot be opened.
    pub fn open_of(path: &Path, file: &Path) -> Result<Option<Self>> {
        Ok(Self::open(path)?.filter(|device| device.is_of(file)))
    }

    /// Opens all loop devices of a file, as [`LoopDevice::is_of`] defines them.
    ///
    /// # Errors
    /// If one of them cannot be opened.
    pub fn all_of(file: &Path) -> Result<Vec<Self>> {
        let opened = candidates(file).into_iter().map(|path| Self::open_of(&path, file).map_err(at(&path)));
        opened.filter_map(Result::transpose).collect()
    }

    /// Returns the loop device of a file, with the file's present size. Detaches devices of the
    /// file whose server died. Attaches the file if it has no device.
    ///
    /// # Errors
    /// If a device cannot be opened, or the kernel refuses.
    pub fn ensure(file: &Path, options: LoopOptions) -> Result<Self> {
        for device in Self::all_of(file)? {
            let path = device.path.clone();
            if device.reads_from(file) {
                device.keep().and_then(|()| device.update_size()).map_err(at(&path))?;
                return Ok(device);
            }
            device.detach().map_err(at(&path))?;
        }
        Self::attach(file, options)
    }

    /// Returns the path of the device.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if the device reads from the file that has this path now, or from one that had
    /// the path when its server died.
    #[must_use]
    pub fn is_of(&self, file: &Path) -> bool {
        self.has_path(file) || self.reads_from(file)
    }

    /// Returns true if the device reads from the file that has this path now. The device of a file
    /// whose server was restarted has the same path and another file.
    #[must_use]
    pub fn reads_from(&self, file: &Path) -> bool {
        let Ok(metadata) = std::fs::metadata(file) else { return false };
        let device = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        let inode = metadata.ino();
        requests::status(&self.device).is_ok_and(|status| requests::file_of(&status) == (device, inode))
    }

    /// Returns true if the file has no path any more and does not answer: no request of the device
    /// can succeed.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.has_path(Path::new(NO_PATH)) && requests::status(&self.device).is_err()
    }

    /// Gives the device the present size of its file.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn update_size(&self) -> Result<()> {
        Ok(requests::update_size(&self.device)?)
    }

    /// Keeps the device after its last user closes it, although another process has detached it.
    fn keep(&self) -> Result<()> {
        let status = requests::status(&self.device)?;
        Ok(requests::keep(&self.device, status)?)
    }

    /// Writes the page cache of the device back, and detaches the device from its file. The kernel
    /// completes this when the last user closes the device; this is at once if there is no other
    /// user.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn detach(self) -> Result<()> {
        // Kernels before 6.11 drop the cache of a device that is detached. The requests of a device
        // whose server died fail.
        let _ = self.device.sync_all();
        match requests::detach(&self.device) {
            // Another process detaches it.
            Err(Errno::NXIO) => Ok(()),
            detached => Ok(detached?),
        }
    }

    fn has_path(&self, file: &Path) -> bool {
        self.path.file_name().and_then(path_of).is_some_and(|path| path == file.as_os_str().as_bytes())
    }
}

/// Returns the paths of the loop devices of a file, for people: they may have another file at any
/// time.
#[must_use]
pub fn paths_of(file: &Path) -> Vec<PathBuf> {
    devices(|path| path == file.as_os_str().as_bytes())
}

/// Returns the paths of the loop devices that may be those of a file: the kernel shows no path for
/// a file whose mount is gone in this mount namespace or was made in one that is.
fn candidates(file: &Path) -> Vec<PathBuf> {
    devices(|path| path == file.as_os_str().as_bytes() || path == NO_PATH.as_bytes())
}

/// Returns the paths of the loop devices whose file has a certain path.
fn devices(of: impl Fn(&[u8]) -> bool) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let found = names.filter(|name| path_of(name).is_some_and(|path| of(&path)));
    let mut paths: Vec<_> = found.map(|name| Path::new("/dev").join(name)).collect();
    paths.sort_unstable();
    paths
}

/// Returns the path of the file of a loop device, by the device's name.
fn path_of(device: &OsStr) -> Option<Vec<u8>> {
    let value = std::fs::read(Path::new(DEVICES).join(device).join("loop/backing_file")).ok()?;
    Some(value.strip_suffix(b"\n").unwrap_or(&value).to_vec())
}

fn is(error: &Error, number: Errno) -> bool {
    error.raw_os_error() == Some(number.raw_os_error())
}

/// Returns a function that adds a path to an error.
fn at<E: Into<Error>>(path: &Path) -> impl Fn(E) -> Error {
    move |error| {
        let error = error.into();
        Error::new(error.kind(), format!("{}: {error}", path.display()))
    }
}

#[cfg(test)]
mod tests;
