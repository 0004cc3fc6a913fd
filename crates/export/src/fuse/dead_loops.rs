//! Loop devices of files whose daemon died.
//!
//! A loop device holds its file open, also after the file's mount is removed. It then fails all
//! requests, keeps the dead file system in the kernel, and has no path any more by which it could
//! be found. The next daemon therefore detaches such devices before it removes the mount. Always
//! true: the server of the file is dead, so that no request of the device can succeed.
#![allow(unsafe_code)]

use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::NoArg;

use crate::host_users::loop_devices_of;

/// The request that detaches a loop device from its file (`LOOP_CLR_FD`, loop(4)). A device in use
/// is detached when its last user closes it.
const DETACH: rustix::ioctl::Opcode = 0x4c01;

/// Detaches the loop devices of a file whose server is dead.
pub(super) fn detach_dead_loops(file: &Path) {
    for device in loop_devices_of(file) {
        let file = file.display();
        match detach(&device) {
            Ok(()) => tracing::info!(device, %file, "detached a loop device of a daemon that died"),
            Err(error) => {
                tracing::warn!(device, %file, %error, "a loop device of a daemon that died stays: detach it with 'losetup -d DEVICE'");
            }
        }
    }
}

fn detach(device: &str) -> std::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::open(device, flags, Mode::empty())?;
    // SAFETY: the request has no argument.
    unsafe { rustix::ioctl::ioctl(&device, NoArg::<DETACH>::new()) }?;
    Ok(())
}
