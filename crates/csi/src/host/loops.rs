//! Loop devices.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::device::DeviceNumber;
use super::error::HostError;
use super::program;

/// Major number of loop devices.
const MAJOR: u32 = 7;

/// Returns the loop devices of a file.
pub(crate) fn of_file(file: &Path) -> Vec<PathBuf> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let is_of_file = |name: &OsStr| {
        let backing = Path::new("/sys/block").join(name).join("loop/backing_file");
        name.as_encoded_bytes().starts_with(b"loop")
            && fs::read(backing)
                .is_ok_and(|path| path.trim_ascii_end() == file.as_os_str().as_encoded_bytes())
    };
    let names = devices.filter_map(|entry| entry.ok().map(|entry| entry.file_name()));
    names.filter(|name| is_of_file(name)).map(|name| Path::new("/dev").join(name)).collect()
}

/// Returns true for the number of a loop device.
pub(crate) fn is_loop(number: DeviceNumber) -> bool {
    number.major == MAJOR
}

/// Returns true if the device reads from `file` as it is now. The device of a file whose server was
/// restarted has the same path, and fails all requests.
///
/// # Errors
/// If the device cannot be queried.
pub(crate) async fn is_current(device: &Path, file: &Path) -> Result<bool, HostError> {
    let Ok(metadata) = fs::metadata(file) else { return Ok(false) };
    let columns = ["--noheadings", "--output", "BACK-MAJ:MIN,BACK-INO"].map(OsStr::new);
    let output = program::succeed("losetup", &[&columns[..], &[device.as_os_str()]].concat()).await?;
    let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
    let mut fields = output.split_whitespace();
    let number = fields.next() == Some(format!("{major}:{minor}").as_str());
    Ok(number && fields.next() == Some(metadata.ino().to_string().as_str()))
}

/// Attaches a file to a free loop device, without a second page cache. Returns the device.
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn attach(file: &Path, sector: u32, read_only: bool) -> Result<PathBuf, HostError> {
    let sector = sector.to_string();
    let mut arguments = ["--find", "--show", "--nooverlap", "--direct-io=on", "--sector-size", &sector]
        .map(OsStr::new)
        .to_vec();
    if read_only {
        arguments.push(OsStr::new("--read-only"));
    }
    arguments.push(file.as_os_str());
    let output = program::succeed("losetup", &arguments).await?;
    Ok(PathBuf::from(output.trim()))
}

/// Detaches a loop device. The kernel completes this when the last user closes the device.
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn detach(device: &Path) -> Result<(), HostError> {
    let end = program::run("losetup", &[OsStr::new("--detach"), device.as_os_str()]).await?;
    let name = device.file_name().unwrap_or_default();
    let is_attached = Path::new("/sys/block").join(name).join("loop/backing_file").exists();
    if end.code() == 0 || !is_attached { Ok(()) } else { Err(end.failure()) }
}

/// Gives a loop device the current size of its file.
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn update_size(device: &Path, file: &Path) -> Result<(), HostError> {
    // Older kernels take the size that they learned from the last query of the file.
    fs::metadata(file).map_err(HostError::at(file, "find the size of the file"))?;
    program::succeed("losetup", &[OsStr::new("--set-capacity"), device.as_os_str()]).await.map(drop)
}
