//! The users of a drive: processes, mounts, swap, and devices on top of it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{DriveKey, Openers};

/// Returns descriptions of the users of a drive.
pub(super) fn users(drive: DriveKey, openers: &Openers) -> Vec<String> {
    let mut users = BTreeSet::new();
    users.extend(openers.pool_of(drive).map(|pool| format!("it belongs to the open pool '{pool}'")));
    match drive {
        DriveKey::Device(number) => {
            for device in with_partitions(number) {
                let name = &device.name;
                if device.number != number {
                    let pool = openers.pool_of(DriveKey::Device(device.number));
                    users.extend(pool.map(|pool| format!("{name} belongs to the open pool '{pool}'")));
                }
                users.extend(
                    openers
                        .others(DriveKey::Device(device.number))
                        .map(|(process, by)| format!("process {process} ({by}) has {name} open for writing")),
                );
                users.extend(
                    mounts(device.number).into_iter().map(|at| format!("{} is mounted at {at}", device.name)),
                );
                users.extend(
                    holders(&device.directory)
                        .into_iter()
                        .map(|by| format!("{} is part of {by}", device.name)),
                );
                if is_swap(DriveKey::Device(device.number)) {
                    users.insert(format!("{} is in use as swap space", device.name));
                }
            }
        }
        DriveKey::File(..) => {
            users.extend(
                openers
                    .others(drive)
                    .map(|(process, by)| format!("process {process} ({by}) has it open for writing")),
            );
            users.extend(loops(drive).into_iter().map(|device| format!("it is in use as {device}")));
            if is_swap(drive) {
                users.insert("it is in use as swap space".into());
            }
        }
    }
    users.into_iter().collect()
}

struct Device {
    number: u64,
    name: String,
    directory: PathBuf,
}

/// Returns a device and its partitions.
fn with_partitions(number: u64) -> Vec<Device> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let Ok(directory) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) else {
        return Vec::new();
    };
    let device = |directory: PathBuf| {
        let number = fs::read_to_string(directory.join("dev")).ok()?;
        let (major, minor) = number.trim().split_once(':')?;
        let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        let name = directory.file_name()?.to_string_lossy().into_owned();
        Some(Device { number, name, directory })
    };
    let parts = entries(&directory).into_iter().filter(|entry| entry.join("partition").exists());
    let parts: Vec<_> = parts.filter_map(device).collect();
    device(directory).into_iter().chain(parts).collect()
}

/// Returns the mount points of a device.
fn mounts(number: u64) -> Vec<String> {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts_in(&text, &format!("{major}:{minor}"), |source| is_device(source, number))
}

/// Returns the mount points of a device in the text of mountinfo. File systems on several devices
/// have a device number of their own there; they are recognised by their source.
fn mounts_in(text: &str, number: &str, is_source: impl Fn(&str) -> bool) -> Vec<String> {
    let line = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ');
        let (device, point) = (front.nth(2)?, front.nth(1)?);
        let source = back.split(' ').nth(1)?;
        (device == number || is_source(source)).then(|| unescape(point))
    };
    text.lines().filter_map(line).collect()
}

/// Decodes the escapes of mountinfo, such as `\040` for a space.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

fn is_device(path: &str, number: u64) -> bool {
    path.starts_with('/') && fs::metadata(path).is_ok_and(|metadata| metadata.rdev() == number)
}

/// Returns the devices on top of this one: device mapper, MD, bcache.
fn holders(directory: &Path) -> Vec<String> {
    let name = |holder: PathBuf| {
        let name = holder.file_name()?.to_string_lossy().into_owned();
        let mapped = fs::read_to_string(holder.join("dm/name")).ok();
        Some(match mapped {
            Some(mapped) => format!("{name} ({})", mapped.trim()),
            None => name,
        })
    };
    entries(&directory.join("holders")).into_iter().filter_map(name).collect()
}

fn is_swap(drive: DriveKey) -> bool {
    let text = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let path = |line: &str| line.split_whitespace().next().map(unescape);
    text.lines()
        .skip(1)
        .filter_map(path)
        .any(|path| super::drive_key(Path::new(&path)).is_ok_and(|key| key == drive))
}

/// Returns the loop devices on a file.
fn loops(file: DriveKey) -> Vec<String> {
    let device = |entry: PathBuf| {
        let backing = fs::read_to_string(entry.join("loop/backing_file")).ok()?;
        let key = super::drive_key(Path::new(backing.trim_end_matches('\n'))).ok()?;
        (key == file).then(|| format!("/dev/{}", entry.file_name().unwrap_or_default().to_string_lossy()))
    };
    entries(Path::new("/sys/block")).into_iter().filter_map(device).collect()
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTINFO: &str = "\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 259:2 / /mnt/with\\040blank rw - xfs /dev/nvme0n1p2 rw
31 22 0:40 / /data rw - btrfs /dev/sdb rw,space_cache
";

    #[test]
    fn mounts_are_found_by_number_and_by_source() {
        assert_eq!(mounts_in(MOUNTINFO, "259:2", |_| false), ["/mnt/with blank"]);
        assert_eq!(mounts_in(MOUNTINFO, "8:16", |source| source == "/dev/sdb"), ["/data"]);
        assert!(mounts_in(MOUNTINFO, "8:0", |_| false).is_empty());
    }

    #[test]
    fn the_root_filesystem_is_seen_to_be_in_use() {
        let root = fs::metadata("/").unwrap().dev();
        let (major, minor) = (rustix::fs::major(root), rustix::fs::minor(root));
        let has_device = Path::new(&format!("/sys/dev/block/{major}:{minor}")).exists();
        let found = if has_device { Ok(()) } else { Err("'/' is not on a device, as in a container".into()) };
        if test_support::has("root-device", found) {
            let users = users(DriveKey::Device(root), &Openers::default());
            assert!(users.iter().any(|user| user.contains("is mounted at /")), "{users:?}");
        }
    }
}
