//! Loop devices: attached and detached with losetup (util-linux), inspected in sysfs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::LabError;
use super::throttle::DeviceNumber;

/// An I/O scheduler with a request queue of its own; with the scheduler `none` the device's queue
/// is used.
const SCHEDULER: &str = "mq-deadline";
/// Entries of an NVMe queue, less the one that stays empty (NVM Express base specification, as
/// Linux uses them).
const QUEUE: &str = "1023";

fn losetup(arguments: &[&str], file: Option<&Path>) -> Result<String, LabError> {
    let mut command = Command::new("losetup");
    command.args(arguments).args(file).stdin(Stdio::null());
    let output = command.output().map_err(|source| LabError::Start { program: "losetup", source })?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(LabError::Failed { program: "losetup", message });
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Attaches a loop device of 4 KiB sectors with direct I/O to a file. Files in tmpfs do not support
/// direct I/O before Linux 6.6; there the device uses the page cache, which is the file's storage
/// anyway.
pub(super) fn attach(file: &Path, in_memory: bool) -> Result<PathBuf, LabError> {
    let common = ["--show", "--find", "--sector-size", "4096"];
    let direct = losetup(&[&common[..], &["--direct-io=on"]].concat(), Some(file));
    let device = if direct.is_err() && in_memory { losetup(&common, Some(file)) } else { direct };
    device.map(PathBuf::from)
}

/// Gives a device a queue as deep as an NVMe drive's, if the kernel has a suitable scheduler. A
/// loop device's own queue has 128 entries. A throttle lets more requests through at a time; the
/// kernel refuses those without a queue entry to submitters that do not wait, such as io_uring,
/// which submit them again, and the throttle counts them twice.
pub(super) fn set_deep_queue(device: &Path) {
    let set = |file: &str, value: &str| {
        let name = device.file_name().unwrap_or_default();
        // Best effort: shallow queues are measured correctly without it.
        std::fs::write(Path::new("/sys/block").join(name).join("queue").join(file), value).is_ok()
    };
    if set("scheduler", SCHEDULER) {
        set("nr_requests", QUEUE);
    }
}

/// Restores the default queue of loop devices, for the next user of the device.
fn restore_queue(device: &Path) {
    let name = device.file_name().unwrap_or_default();
    let _ = std::fs::write(Path::new("/sys/block").join(name).join("queue/scheduler"), "none");
}

/// Returns the loop devices of a file.
pub(super) fn devices_of(file: &Path) -> Result<Vec<PathBuf>, LabError> {
    let text = losetup(&["--noheadings", "--output", "NAME", "--associated"], Some(file))?;
    Ok(text
        .lines()
        .map(|line| PathBuf::from(line.trim()))
        .filter(|path| !path.as_os_str().is_empty())
        .collect())
}

/// Detaches a device.
///
/// # Errors
/// If a program has it open: the kernel detaches it after the last close.
pub(super) fn detach(device: &Path) -> Result<(), LabError> {
    restore_queue(device);
    losetup(&["--detach"], Some(device))?;
    match backing_file(device) {
        None => Ok(()),
        Some(_) => Err(LabError::InUse { device: device.into(), by: "a program that has it open".into() }),
    }
}

fn sysfs(device: &Path, file: &str) -> Option<String> {
    let name = device.file_name()?;
    let text = std::fs::read_to_string(Path::new("/sys/block").join(name).join(file)).ok()?;
    Some(text.trim().to_owned())
}

/// Returns the file behind a device, if there is one.
pub(super) fn backing_file(device: &Path) -> Option<PathBuf> {
    // The name of a deleted file has this suffix.
    let text = sysfs(device, "loop/backing_file")?;
    Some(PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(&text)))
}

/// Returns the device number.
pub(super) fn number(device: &Path) -> Result<DeviceNumber, LabError> {
    let text = sysfs(device, "dev").unwrap_or_default();
    let parsed = text.split_once(':').and_then(|(major, minor)| {
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    });
    parsed.ok_or_else(|| LabError::NotOurs { device: device.into(), found: "not a block device".into() })
}

/// Returns a known user of a device.
pub(super) fn user(device: &Path, number: DeviceNumber, mounts: &str) -> Option<String> {
    holder(device, number, mounts).or_else(|| opener(device))
}

/// Returns the file system mounted from a device, or the device stacked on it.
pub(super) fn holder(device: &Path, number: DeviceNumber, mounts: &str) -> Option<String> {
    let start = number.to_string();
    if let Some(line) = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&start)) {
        return Some(format!("the file system mounted on {}", line.split(' ').nth(4).unwrap_or("?")));
    }
    let held = Path::new("/sys/block").join(device.file_name()?).join("holders");
    let holder = std::fs::read_dir(held).ok()?.flatten().next()?;
    Some(holder.file_name().to_string_lossy().into_owned())
}

/// Returns a program that has the device open.
fn opener(device: &Path) -> Option<String> {
    let numbered = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.bytes().all(|byte| byte.is_ascii_digit())
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path()).filter(numbered);
    let opens = |process: &PathBuf| {
        let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        files.into_iter().any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target == device))
    };
    let process = { processes }.find(opens)?;
    let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    Some(format!("{} (process {})", name.trim(), process.file_name()?.to_string_lossy()))
}

/// True if the device is open exclusively, as by a pool or a mounted file system.
pub(super) fn is_claimed(device: &Path) -> bool {
    use rustix::fs::{Mode, OFlags};
    let opened = rustix::fs::open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
    opened.is_err_and(|error| error == rustix::io::Errno::BUSY)
}
