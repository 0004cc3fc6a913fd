//! Mount points and loop devices of tests, released when a test fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::harness::until;

/// Returns true if something is mounted at the path.
pub(crate) fn is_mounted(mount_point: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == mount_point.to_str())
}

/// Unmounts a path on drop.
pub(crate) struct UnmountGuard<'a>(pub(crate) &'a Path);

impl Drop for UnmountGuard<'_> {
    fn drop(&mut self) {
        while is_mounted(self.0) && Command::new("umount").arg("-l").arg(self.0).status().unwrap().success() {
        }
    }
}

/// A loop device, detached on drop.
pub(crate) struct LoopDevice(pub(crate) String, PathBuf);

impl LoopDevice {
    /// Attaches a file, without the page cache of the file.
    #[track_caller]
    pub(crate) fn attach(file: &str) -> Self {
        Self::attach_with(file, &["--direct-io=on"])
    }

    /// Attaches a file, with options of losetup.
    #[track_caller]
    pub(crate) fn attach_with(file: &str, options: &[&str]) -> Self {
        let device = run("losetup", &[options, &["--find", "--show", file]].concat());
        Self(device.trim().to_owned(), file.into())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // By its file: the daemon may have detached it, and another test may have its name now.
        let detach =
            || loop_device::LoopDevice::all_of(&self.1)?.into_iter().try_for_each(|device| device.detach());
        let detached = detach();
        assert!(detached.is_ok() || std::thread::panicking(), "{}: {detached:?}", self.0);
    }
}

/// Unmounts a path. A process that another test is starting may have inherited an open file for a
/// moment.
#[track_caller]
pub(crate) fn unmount(path: &str) {
    until("the path is unmounted", || {
        let output = Command::new("umount").arg(path).env("LC_ALL", "C").output().unwrap();
        let is_busy = String::from_utf8_lossy(&output.stderr).contains("busy");
        assert!(output.status.success() || is_busy, "umount {path}: {output:?}");
        output.status.success()
    });
}

/// Runs a program that must succeed. Returns its output.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
