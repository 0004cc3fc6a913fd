//! Loop devices of files whose daemon died.
//!
//! A loop device holds its file open, and no longer finds it once the file's mount is removed: it
//! fails all requests, keeps the dead file system in the kernel, and nobody can tell whose it was.
//! The next daemon therefore detaches such devices before it removes the mount. Always true: the
//! server of the file is dead, so that no request of the device can succeed.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::NoArg;

/// The request that detaches a loop device from its file (`LOOP_CLR_FD`, loop(4)). A device in use
/// is detached when its last user closes it.
const DETACH: rustix::ioctl::Opcode = 0x4c01;
const DEVICES: &str = "/sys/block";

/// Detaches the loop devices of a file whose server is dead.
pub(super) fn detach_dead_loops(file: &Path) {
    for name in loops_of(Path::new(DEVICES), file) {
        let device = Path::new("/dev").join(&name);
        match detach(&device) {
            Ok(()) => {
                tracing::info!(device = %device.display(), file = %file.display(), "detached a loop device of a daemon that died");
            }
            Err(error) => {
                tracing::warn!(device = %device.display(), file = %file.display(), %error, "a loop device of a daemon that died stays");
            }
        }
    }
}

/// Returns the names of the loop devices of a file, in a directory like `/sys/block`.
fn loops_of(devices: &Path, file: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(devices) else { return Vec::new() };
    let is_of_file = |entry: &std::fs::DirEntry| {
        let backing = std::fs::read(entry.path().join("loop/backing_file"));
        backing.is_ok_and(|path| OsStr::from_bytes(path.trim_ascii_end()) == file.as_os_str())
    };
    entries.flatten().filter(is_of_file).map(|entry| entry.file_name().into()).collect()
}

fn detach(device: &Path) -> std::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let device = rustix::fs::open(device, flags, Mode::empty())?;
    // SAFETY: the request has no argument.
    unsafe { rustix::ioctl::ioctl(&device, NoArg::<DETACH>::new()) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loop_devices_are_found_by_their_whole_path() {
        let devices = tempfile::tempdir().unwrap();
        let add = |name: &str, file: Option<&str>| {
            let device = devices.path().join(name);
            std::fs::create_dir_all(device.join("loop")).unwrap();
            if let Some(file) = file {
                std::fs::write(device.join("loop/backing_file"), format!("{file}\n")).unwrap();
            }
        };
        add("loop0", Some("/run/gabion/fuse/fast/vm01"));
        add("loop1", Some("/run/gabion/fuse/fast/vm011"));
        add("loop2", Some("/"));
        add("loop3", None);
        add("vda", None);
        let found = loops_of(devices.path(), Path::new("/run/gabion/fuse/fast/vm01"));
        assert_eq!(found, [PathBuf::from("loop0")]);
    }
}
