//! The symbolic link to a device. The kernel chooses the device's number.
//!
//! Always true: a foreign file in the place of a link is not changed.

use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use reactor::Access;

use super::error::{DeviceError, DeviceErrorKind};

/// Prefix of the targets of our links.
const TARGETS: &str = "/dev/ublkb";

/// Creates a link, or replaces a link to another device. A missing directory is created
/// with the rights of `access`.
///
/// # Errors
/// Fails if the path is a foreign file, or access is denied.
pub(super) fn make(link: &Path, access: Access, device: &Path) -> Result<(), DeviceError> {
    let failed =
        |action: &str, error: &io::Error| DeviceError::system(&format!("{action} {}", link.display()), error);
    if let Some(above) = link.parent() {
        access.make_directories(above).map_err(|error| failed("make the directory of", &error))?;
    }
    match std::fs::read_link(link) {
        Ok(target) if target.to_string_lossy().starts_with(TARGETS) => {
            std::fs::remove_file(link).map_err(|error| failed("replace", &error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        _ => {
            let message = format!("{} already exists and is not a link to a ublk device", link.display());
            return Err(DeviceError::new(DeviceErrorKind::Occupied, message));
        }
    }
    symlink(device, link).map_err(|error| failed("make", &error))
}

/// Removes a link if it points to `device`.
pub(super) fn remove(link: &Path, device: &Path) {
    if std::fs::read_link(link).is_ok_and(|target| target == device) {
        // A link that stays is dangling.
        let _ = std::fs::remove_file(link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_devices_are_replaced() {
        let home = tempfile::tempdir().unwrap();
        let link = home.path().join("fast/vm01");
        let [first, second] = ["/dev/ublkb0", "/dev/ublkb1"].map(Path::new);
        make(&link, Access::OWNER, first).unwrap();
        make(&link, Access::OWNER, second).unwrap();
        assert_eq!(std::fs::read_link(&link).unwrap(), second);
        remove(&link, first);
        assert!(link.is_symlink(), "the link to another device stays");
        remove(&link, second);
        assert!(!link.is_symlink());
        for precious in ["file", "link"] {
            match precious {
                "file" => std::fs::write(&link, "precious").unwrap(),
                _ => symlink("/dev/sda", &link).unwrap(),
            }
            let refused = make(&link, Access::OWNER, first).unwrap_err();
            assert_eq!(refused.kind(), DeviceErrorKind::Occupied);
            std::fs::remove_file(&link).unwrap();
        }
    }
}
