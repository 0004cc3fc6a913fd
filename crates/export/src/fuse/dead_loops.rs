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
    for path in loop_device::paths_of(file) {
        let detached = match LoopDevice::open_of(&path, file) {
            Ok(Some(device)) => device.detach(),
            // It has another file now.
            Ok(None) => continue,
            Err(error) => Err(error),
        };
        let (device, file) = (path.display(), file.display());
        match detached {
            Ok(()) => tracing::info!(%device, %file, "detached a loop device of a daemon that died"),
            Err(error) => {
                tracing::warn!(%device, %file, %error, "a loop device of a daemon that died stays: detach it with 'losetup -d DEVICE'");
            }
        }
    }
}
