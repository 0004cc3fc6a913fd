//! Paths of drives that stay the same when drives are added, moved or detected in another order.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const BY_ID: &str = "/dev/disk/by-id";

/// Returns a stable path of a drive: for a block device a link in `/dev/disk/by-id`, for a file its
/// canonical path.
pub(crate) fn stable_path(path: &Path) -> PathBuf {
    let plain = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if path.starts_with(BY_ID) || !plain.starts_with("/dev") {
        return if path.starts_with(BY_ID) { path.to_owned() } else { plain };
    }
    let Ok(number) = fs::metadata(path).map(|metadata| metadata.rdev()) else { return plain };
    let matching = |(name, other): (PathBuf, u64)| (other == number).then_some(name);
    best(all_by_id().into_iter().filter_map(matching)).unwrap_or(plain)
}

/// Returns all links in `/dev/disk/by-id` with the numbers of their devices.
pub(crate) fn all_by_id() -> Vec<(PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(BY_ID) else { return Vec::new() };
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.ok()?.path();
        let number = fs::metadata(&path).ok()?.rdev();
        Some((path, number))
    };
    let mut names: Vec<_> = entries.filter_map(name).collect();
    names.sort();
    names
}

/// Returns the most readable name: model and serial number rather than a bare identifier.
fn best(names: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    const ORDER: [&str; 8] = ["nvme-", "ata-", "scsi-S", "scsi-", "virtio-", "usb-", "mmc-", "wwn-"];
    let rank = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bare = ["nvme-eui.", "nvme-uuid.", "nvme-nvme."].iter().any(|prefix| name.starts_with(prefix));
        let place = ORDER.iter().position(|prefix| name.starts_with(prefix)).unwrap_or(ORDER.len());
        (if bare { ORDER.len() } else { place }, name.len(), name)
    };
    names.min_by_key(rank)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_model_and_serial_is_preferred() {
        let names = |names: &[&str]| {
            best(names.iter().map(|name| Path::new(BY_ID).join(name)))
                .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        };
        assert_eq!(
            names(&["nvme-eui.0025385", "wwn-0x5000", "nvme-KIOXIA_KCM7_1234_1", "nvme-KIOXIA_KCM7_1234"])
                .as_deref(),
            Some("nvme-KIOXIA_KCM7_1234")
        );
        assert_eq!(names(&["wwn-0x5000", "ata-ST1000_Z1"]).as_deref(), Some("ata-ST1000_Z1"));
        assert_eq!(names(&["lvm-pv-uuid-x", "wwn-0x5000"]).as_deref(), Some("wwn-0x5000"));
        assert_eq!(names(&[]), None);
    }

    #[test]
    fn a_file_is_named_without_links() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(stable_path(&link), fs::canonicalize(&file).unwrap());
        assert_eq!(stable_path(Path::new("/nowhere/x")), Path::new("/nowhere/x"));
    }
}
