//! Loop devices of files whose daemon died.
//!
//! A loop device holds its file open, also after the file's mount is removed. It then fails all
//! requests, keeps the dead file system in the kernel, and has no path any more by which it could
//! be found. The next daemon therefore detaches such devices before it removes the mount. Always
//! true: the server of the file is dead, so that no request of the device can succeed.

use std::path::Path;

use loop_device::LoopDevice;

/// Detaches the loop devices of a file whose server is dead.
pub(super) fn detach_dead_loops(file: &Path) {
    let devices = LoopDevice::all_of(file).unwrap_or_else(|error| {
        tracing::warn!(file = %file.display(), %error, "cannot open the loop devices of a daemon that died");
        Vec::new()
    });
    for device in devices {
        let (device_path, file) = (device.path().display().to_string(), file.display());
        match device.detach() {
            Ok(()) => {
                tracing::info!(device = device_path, %file, "detached a loop device of a daemon that died");
            }
            Err(error) => {
                tracing::warn!(device = device_path, %file, %error, "a loop device of a daemon that died stays: detach it with 'losetup -d DEVICE'");
            }
        }
    }
}
