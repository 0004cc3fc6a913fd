//! Removal of a lab.

use std::path::Path;

use rustix::mount::UnmountFlags;

use super::record::Lab;
use super::{LabError, loops, mounts, must_be_root};

/// Removes a lab.
///
/// # Errors
/// If the lab is in use, or a device or file does not match its record; nothing is changed then.
pub fn down(name: &str) -> Result<Lab, LabError> {
    must_be_root()?;
    let lab = Lab::find(name)?.ok_or_else(|| LabError::Unknown(name.into()))?;
    check(&lab)?;
    remove(&lab)?;
    Ok(lab)
}

/// Rejects devices that are in use or do not belong to the lab.
fn check(lab: &Lab) -> Result<(), LabError> {
    let mounts = mounts()?;
    for drive in &lab.drives {
        let device = &drive.device;
        match loops::backing_file(device) {
            // The device has already been removed.
            None => continue,
            Some(file) if file != drive.file => {
                let found = format!("{} is behind it", file.display());
                return Err(LabError::NotOurs { device: device.clone(), found });
            }
            Some(_) => {}
        }
        let by = loops::user(device, drive.number, &mounts)
            .or_else(|| loops::is_claimed(device).then(|| "another program".to_owned()));
        if let Some(by) = by {
            return Err(LabError::InUse { device: device.clone(), by });
        }
    }
    Ok(())
}

/// Removes everything that exists, in reverse order of creation. The record stays if anything
/// remains.
pub(super) fn remove(lab: &Lab) -> Result<(), LabError> {
    for drive in &lab.drives {
        match loops::backing_file(&drive.device) {
            Some(file) if file == drive.file => {
                lab.throttle.clear(drive.number)?;
                loops::detach(&drive.device)?;
            }
            // The device has already been removed. The lab's limits may still be set on its number.
            None if lab.throttle.has(drive.number, &lab.limits)? => lab.throttle.clear(drive.number)?,
            _ => {}
        }
    }
    // A device that was attached and not yet recorded.
    for file in files(&lab.directory) {
        for device in loops::devices_of(&file)? {
            lab.throttle.clear(loops::number(&device)?)?;
            loops::detach(&device)?;
        }
    }
    lab.throttle.remove()?;
    if lab.in_memory && is_mounted(&lab.directory)? {
        rustix::mount::unmount(&lab.directory, UnmountFlags::empty())
            .map_err(|error| LabError::file(&lab.directory, error))?;
    }
    for file in files(&lab.directory) {
        std::fs::remove_file(&file).map_err(|error| LabError::file(&file, error))?;
    }
    match std::fs::remove_dir(&lab.directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(LabError::file(&lab.directory, error));
        }
        _ => {}
    }
    lab.delete()
}

/// Returns the files of drives in the lab's directory.
fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let ours = |path: &std::path::PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("drive") && name.ends_with(".img")
    };
    entries.map(|entry| entry.path()).filter(ours).collect()
}

fn is_mounted(at: &Path) -> Result<bool, LabError> {
    let place = at.to_string_lossy();
    Ok(mounts()?.lines().any(|line| line.split(' ').nth(4) == Some(&*place)))
}
