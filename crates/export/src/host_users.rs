//! Users of files and block devices on this host, as the kernel's tables list them: mount points,
//! loop devices, and devices stacked on others.
//!
//! Must not know: exports. The tables change at any time: the result is for people.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The table of mounts, as in proc(5).
const MOUNTS: &str = "/proc/self/mountinfo";

/// Returns the loop devices on a file, and the users of these.
pub(crate) fn of_file(path: &Path) -> Vec<String> {
    let with_users = |device: PathBuf| {
        let users = of_device(&device);
        std::iter::once(device.to_string_lossy().into_owned()).chain(users)
    };
    loop_device::paths_of(path).into_iter().flat_map(with_users).collect()
}

/// Returns the mount points of a block device, and the devices stacked on it.
pub(crate) fn of_device(device: &Path) -> Vec<String> {
    let Ok(metadata) = std::fs::metadata(device) else { return Vec::new() };
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let number = format!("{major}:{minor}");
    let mut users = std::fs::read(MOUNTS).map(|table| mount_points(&table, &number)).unwrap_or_default();
    let holders = format!("/sys/dev/block/{number}/holders");
    users.extend(names_in(Path::new(&holders)).map(|holder| format!("/dev/{holder}")));
    users
}

fn names_in(directory: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names.into_iter()
}

/// Returns the mount points of the device `number` (`major:minor`) in a table of mounts.
fn mount_points(table: &[u8], number: &str) -> Vec<String> {
    let fields = table.split(|byte| *byte == b'\n').map(|line| {
        let mut fields = line.split(|byte| *byte == b' ');
        (fields.nth(2), fields.nth(1))
    });
    let own = fields.filter(|(device, _)| *device == Some(number.as_bytes()));
    let shown = |place: &[u8]| OsStr::from_bytes(&unescape(place)).to_string_lossy().into_owned();
    own.filter_map(|(_, place)| place.map(shown)).collect()
}

/// Decodes a field of the table: white space is encoded as a backslash and three octal digits.
pub(crate) fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, digits.and_then(|digits| u8::from_str_radix(digits, 8).ok())) {
            (b'\\', Some(byte)) => {
                plain.push(byte);
                rest = behind.get(3..).unwrap_or_default();
            }
            _ => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_found_by_device() {
        let table = b"36 35 259:3 / /mnt/a\\040b rw,noatime master:1 - ext4 /dev/ublkb3 rw\n\
            37 35 259:30 / /mnt/c rw - ext4 /dev/ublkb30 rw\n\
            38 35 259:3 /sub /mnt/d rw - ext4 /dev/ublkb3 rw\n";
        assert_eq!(mount_points(table, "259:3"), ["/mnt/a b", "/mnt/d"]);
        assert!(mount_points(table, "7:0").is_empty());
    }

    #[test]
    fn missing_devices_have_no_users() {
        assert!(of_device(Path::new("/dev/there-is-none")).is_empty());
        assert!(of_file(Path::new("/there-is-none")).is_empty());
    }
}
