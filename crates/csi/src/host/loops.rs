//! Loop devices of files that the daemon serves. Other calls proceed while the kernel works.

use std::path::{Path, PathBuf};

use loop_device::{LoopDevice, LoopOptions};

use super::blocking::blocking;
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
    let path = device.to_owned();
    blocking(move || LoopDevice::open(&path)).await.map_err(HostError::at(device, "open the device"))
}

/// Opens the loop device that a file had. Returns `None` if the device may have got another file
/// since then; a file that nobody serves any more counts as the same.
///
/// # Errors
/// If the device cannot be opened.
pub(crate) async fn reopen(device: &Path, file: Option<PathBuf>) -> Result<Option<LoopDevice>, HostError> {
    let path = device.to_owned();
    let opened = blocking(move || {
        let is_same =
            |device: &LoopDevice| device.is_dead() || file.as_deref().is_some_and(|file| device.is_of(file));
        Ok(LoopDevice::open(&path)?.filter(is_same))
    });
    opened.await.map_err(HostError::at(device, "open the device"))
}

/// Opens the loop devices of a file, also of one at this path whose daemon was stopped.
///
/// # Errors
/// If one cannot be opened.
pub(crate) async fn of_file(file: &Path) -> Result<Vec<LoopDevice>, HostError> {
    let path = file.to_owned();
    let opened = blocking(move || LoopDevice::all_of(&path)).await;
    opened.map_err(HostError::at(file, "open the loop devices of the file"))
}

/// Returns the path of the loop device that reads from the file as it is now.
///
/// # Errors
/// If the loop devices of the file cannot be opened.
pub(crate) async fn current(file: &Path) -> Result<Option<PathBuf>, HostError> {
    let path = file.to_owned();
    let found = blocking(move || {
        let found = LoopDevice::all_of(&path)?.into_iter().find(|device| device.reads_from(&path));
        Ok(found.map(|device| device.path().to_owned()))
    });
    found.await.map_err(HostError::at(file, "open the loop devices of the file"))
}

/// Returns the loop device of a file, as [`LoopDevice::ensure`].
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn ensure(file: &Path, options: LoopOptions) -> Result<LoopDevice, HostError> {
    let path = file.to_owned();
    let ensured = blocking(move || LoopDevice::ensure(&path, options)).await;
    ensured.map_err(HostError::at(file, "make a loop device of the file"))
}

/// Gives a loop device of a file the file's present size.
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn update_size(device: &Path, file: PathBuf) -> Result<(), HostError> {
    let path = device.to_owned();
    let updated = blocking(move || {
        // This also queries the size of the file, which older kernels take.
        let current = LoopDevice::open(&path)?.filter(|device| device.reads_from(&file));
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
    blocking(move || device.detach()).await.map_err(HostError::at(&path, "detach the device"))
}
