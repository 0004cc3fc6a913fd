//! Mounts of this node.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};

use super::blocking::blocking;
use super::device::DeviceNumber;
use super::error::HostError;
use super::program;

/// The table of mounts of this process.
const TABLE: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Device of the file system.
    pub(crate) device: DeviceNumber,
    /// Directory or file within the file system that is mounted.
    pub(crate) root: PathBuf,
    /// Mount point.
    pub(crate) path: PathBuf,
    /// True if the mount refuses writes.
    pub(crate) read_only: bool,
    /// Kind of the file system.
    pub(crate) file_system: String,
}

/// Returns all mounts, in the order in which they were made.
///
/// # Errors
/// If the table cannot be read.
pub(crate) fn all() -> Result<Vec<MountEntry>, HostError> {
    let table = std::fs::read(TABLE).map_err(HostError::at(Path::new(TABLE), "read the mounts"))?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// Returns the topmost mount at `path`; `None` if it is not a mount point.
///
/// # Errors
/// If the table cannot be read.
pub(crate) fn at(path: &Path) -> Result<Option<MountEntry>, HostError> {
    let Some(path) = resolve(path) else { return Ok(None) };
    Ok(all()?.into_iter().rfind(|mount| mount.path == path))
}

/// Returns the path without symbolic links. The last component is not looked at, because the file
/// system that is mounted there may have failed.
fn resolve(path: &Path) -> Option<PathBuf> {
    let (parent, name) = (path.parent()?, path.file_name()?);
    Some(std::fs::canonicalize(parent).ok()?.join(name))
}

/// Parses a line: `36 35 98:0 /root /mount/point rw,noatime master:1 - ext4 /dev/root rw`.
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
    let device = DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? };
    let (root, path) = (unescape(fields.next()?), unescape(fields.next()?));
    let read_only = fields.next()?.split(|byte| *byte == b',').any(|option| option == b"ro");
    let file_system = fields.skip_while(|field| *field != b"-").nth(1)?;
    let file_system = String::from_utf8_lossy(file_system).into_owned();
    Some(MountEntry { device, root, path, read_only, file_system })
}

/// Replaces the octal escapes of spaces, tabs, line ends and backslashes.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let code = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, code) {
            (b'\\', Some(code)) => {
                bytes.push(code);
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Mounts the file system of a device.
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn mount(
    device: &Path,
    path: &Path,
    file_system: &str,
    options: &[String],
) -> Result<(), HostError> {
    let options = options.join(",");
    let mut arguments = vec![OsStr::new("-t"), OsStr::new(file_system)];
    if !options.is_empty() {
        arguments.extend([OsStr::new("-o"), OsStr::from_bytes(options.as_bytes())]);
    }
    arguments.extend([device.as_os_str(), path.as_os_str()]);
    program::succeed("mount", &arguments).await.map(drop)
}

/// Makes a directory or file visible at another path, too.
///
/// # Errors
/// If the kernel refuses.
pub(crate) async fn bind(from: &Path, to: &Path, read_only: bool) -> Result<(), HostError> {
    program::succeed("mount", &[OsStr::new("--bind"), from.as_os_str(), to.as_os_str()]).await?;
    if read_only {
        let remount = [OsStr::new("-o"), OsStr::new("remount,bind,ro"), to.as_os_str()];
        if let Err(error) = program::succeed("mount", &remount).await {
            unmount_all(to).await?;
            return Err(error);
        }
    }
    Ok(())
}

/// Unmounts everything at `path`. Does nothing if it is not a mount point. Other calls proceed
/// while the file system waits for its device.
///
/// # Errors
/// If a mount is in use.
pub(crate) async fn unmount_all(path: &Path) -> Result<(), HostError> {
    while at(path)?.is_some() {
        let mounted = path.to_owned();
        let unmounted = blocking(move || Ok(unmount(&mounted, UnmountFlags::NOFOLLOW)?)).await;
        unmounted.map_err(HostError::at(path, "unmount"))?;
    }
    Ok(())
}

/// Unmounts everything at `path` and removes the empty directory or the file. Does nothing if it
/// does not exist.
///
/// # Errors
/// If a mount is in use, or the directory is not empty.
pub(crate) async fn remove(path: &Path) -> Result<(), HostError> {
    unmount_all(path).await?;
    let removed = match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => std::fs::remove_dir(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(HostError::at(path, "remove")(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_table_are_parsed() {
        let line = br"36 35 7:3 /a\040b /mnt/x\134y rw,ro,noatime master:1 shared:2 - xfs /dev/loop3 rw";
        let expected = MountEntry {
            device: DeviceNumber { major: 7, minor: 3 },
            root: "/a b".into(),
            path: r"/mnt/x\y".into(),
            read_only: true,
            file_system: "xfs".to_owned(),
        };
        assert_eq!(parse(line), Some(expected));
        let plain = parse(b"22 1 0:20 / /sys rw,nosuid - sysfs sysfs rw").unwrap();
        assert_eq!((plain.read_only, plain.file_system.as_str()), (false, "sysfs"));
        for broken in [&b""[..], b"36 35", b"36 35 7 / /mnt rw - xfs", b"36 35 7:3 / /mnt rw xfs"] {
            assert_eq!(parse(broken), None);
        }
    }

    #[test]
    fn the_table_of_this_process_has_the_root() {
        assert!(all().unwrap().iter().any(|mount| mount.path == Path::new("/")));
        assert_eq!(at(Path::new("/no/such/path")).unwrap(), None);
    }
}
