//! Loop devices of files that the daemon serves. Other calls proceed while the kernel works.

use std::io;
use std::path::{Path, PathBuf};

use loop_device::{LoopDevice, LoopOptions};

use super::device::DeviceNumber;
use super::error::HostError;

/// Major number of loop devices.
const MAJOR: u32 = 7;

/// Returns true for the number of a loop device.
pub(crate) fn is_loop(number: DeviceNumber) -> bool {
    number.major == MAJOR
}

/// Opens a loop device. Returns `None` if it has no file.
///
/// # Errors
/// If it cannot be opened.
pub(crate) async fn open(device: &Path) -> Result<Option<LoopDevice>, HostError> {
    let opened = at(device, LoopDevice::open).await;
    opened.map_err(HostError::at(device, "open the device"))
}

/// Opens a loop device that was one of the file. Returns `None` if it may have got another file
/// since then.
///
/// # Errors
/// If it cannot be opened.
pub(crate) async fn open_of(device: &Path, file: Option<PathBuf>) -> Result<Option<LoopDevice>, HostError> {
    let opened = at(device, move |device| {
        let is_of =
            |device: &LoopDevice| device.is_dead() || file.as_deref().is_some_and(|file| device.is_of(file));
        Ok(LoopDevice::open(device)?.filter(is_of))
    });
    opened.await.map_err(HostError::at(device, "open the device"))
}

/// Opens the loop devices of a file, also of one at this path whose daemon was stopped.
///
/// # Errors
/// If one cannot be opened.
pub(crate) async fn of_file(file: &Path) -> Result<Vec<LoopDevice>, HostError> {
    at(file, LoopDevice::all_of).await.map_err(HostError::at(file, "open the loop devices of the file"))
}

/// Returns the path of the loop device that reads from the file as it is now.
///
/// # Errors
/// If the loop devices of the file cannot be opened.
pub(crate) async fn current(file: &Path) -> Result<Option<PathBuf>, HostError> {
    let found = at(file, |file| {
        let found = LoopDevice::all_of(file)?.into_iter().find(|device| device.reads_from(file));
        Ok(found.map(|device| device.path().to_owned()))
    });
    found.await.map_err(HostError::at(file, "open the loop devices of the file"))
}

/// Returns the loop device of a file, with the present size; attaches the file to a free device if
/// it has none. Detaches devices of the file whose daemon was stopped.
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn ensure(file: &Path, options: LoopOptions) -> Result<LoopDevice, HostError> {
    let ensured = at(file, move |file| {
        for device in LoopDevice::all_of(file)? {
            if device.reads_from(file) {
                // An earlier call may have detached it while a container used it.
                device.keep()?;
                device.update_size()?;
                return Ok(device);
            }
            device.detach()?;
        }
        LoopDevice::attach(file, options)
    });
    ensured.await.map_err(HostError::at(file, "make a loop device of the file"))
}

/// Gives a loop device of a file the file's present size.
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn update_size(device: &Path, file: PathBuf) -> Result<(), HostError> {
    let updated = at(device, move |device| {
        // This also queries the size of the file, which older kernels take.
        let current = LoopDevice::open(device)?.filter(|device| device.reads_from(&file));
        current.map_or(Ok(()), |device| device.update_size())
    });
    updated.await.map_err(HostError::at(device, "update the size of the device"))
}

/// Detaches a loop device. The kernel completes this when the last user closes the device.
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn detach(device: LoopDevice) -> Result<(), HostError> {
    let path = device.path().to_owned();
    at(&path, move |_| device.detach()).await.map_err(HostError::at(&path, "detach the device"))
}

/// Runs work on a path that waits for the kernel.
async fn at<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || work(&path)).await.map_err(io::Error::other)?
}
