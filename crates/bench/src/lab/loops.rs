//! Loop devices: made and taken away by losetup (util-linux), looked at in sysfs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::LabError;
use super::throttle::DeviceNumber;

/// A scheduler with a queue of its own; that of no scheduler is the device's.
const SCHEDULER: &str = "mq-deadline";
/// Entries of an NVMe queue, less the one that stays empty (NVM Express base specification, as Linux uses them).
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

/// Puts a device of 4 KiB sectors in front of a file, without a page cache between them. Where a file in memory takes no direct
/// operations (Linux before 6.6), its page cache is all that it is, and they go there.
pub(super) fn attach(file: &Path, in_memory: bool) -> Result<PathBuf, LabError> {
    let usual = ["--show", "--find", "--sector-size", "4096"];
    let direct = losetup(&[&usual[..], &["--direct-io=on"]].concat(), Some(file));
    let device = if direct.is_err() && in_memory { losetup(&usual, Some(file)) } else { direct };
    device.map(PathBuf::from)
}

/// Gives a device a queue as deep as an NVMe drive's, where the kernel has a scheduler that does. A loop device's own has room for 128
/// operations. A limit lets many more through at once than that, and what then finds no room is refused to callers that
/// do not want to wait, as io_uring is; they submit it again, and the limit counts it twice.
pub(super) fn deepen(device: &Path) {
    let set = |file: &str, value: &str| {
        let name = device.file_name().unwrap_or_default();
        // Best effort: shallow operations are measured right without.
        std::fs::write(Path::new("/sys/block").join(name).join("queue").join(file), value).is_ok()
    };
    if set("scheduler", SCHEDULER) {
        set("nr_requests", QUEUE);
    }
}

/// The queue that loop devices have by themselves, for whoever has the device next.
fn make_usual(device: &Path) {
    let name = device.file_name().unwrap_or_default();
    let _ = std::fs::write(Path::new("/sys/block").join(name).join("queue/scheduler"), "none");
}

/// The devices in front of a file.
pub(super) fn in_front_of(file: &Path) -> Result<Vec<PathBuf>, LabError> {
    let text = losetup(&["--noheadings", "--output", "NAME", "--associated"], Some(file))?;
    Ok(text
        .lines()
        .map(|line| PathBuf::from(line.trim()))
        .filter(|path| !path.as_os_str().is_empty())
        .collect())
}

/// Takes a device away.
///
/// # Errors
/// When somebody has it open: the kernel takes it away when they are done.
pub(super) fn detach(device: &Path) -> Result<(), LabError> {
    make_usual(device);
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

/// The file behind a device, if there is one.
pub(super) fn backing_file(device: &Path) -> Option<PathBuf> {
    // A file that was deleted while it was behind a device is named so.
    let text = sysfs(device, "loop/backing_file")?;
    Some(PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(&text)))
}

/// The device's number.
pub(super) fn number(device: &Path) -> Result<DeviceNumber, LabError> {
    let text = sysfs(device, "dev").unwrap_or_default();
    let parsed = text.split_once(':').and_then(|(major, minor)| {
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    });
    parsed.ok_or_else(|| LabError::NotOurs { device: device.into(), found: "no block device".into() })
}

/// Who uses a device in a way that the system knows of.
pub(super) fn user(device: &Path, number: DeviceNumber, mounts: &str) -> Option<String> {
    holder(device, number, mounts).or_else(|| opener(device))
}

/// What is mounted from a device, or built upon it.
pub(super) fn holder(device: &Path, number: DeviceNumber, mounts: &str) -> Option<String> {
    let start = number.to_string();
    if let Some(line) = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&start)) {
        return Some(format!("the file system that is mounted on {}", line.split(' ').nth(4).unwrap_or("?")));
    }
    let held = Path::new("/sys/block").join(device.file_name()?).join("holders");
    let holder = std::fs::read_dir(held).ok()?.flatten().next()?;
    Some(holder.file_name().to_string_lossy().into_owned())
}

/// A program that has the device open.
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

/// True if somebody has claimed the device for himself, as pools and mounted file systems do.
pub(super) fn is_claimed(device: &Path) -> bool {
    use rustix::fs::{Mode, OFlags};
    let opened = rustix::fs::open(device, OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty());
    opened.is_err_and(|error| error == rustix::io::Errno::BUSY)
}
