//! File systems on devices: detection, creation, repair and growth.

use std::ffi::OsStr;
use std::path::Path;

use super::error::HostError;
use super::program;

/// Exit status of `blkid` if it finds nothing, or cannot read the device.
const BLKID_NOTHING: i32 = 2;
/// Highest exit status of `fsck` that means that no errors are left.
const FSCK_REPAIRED: i32 = 1;

/// Smallest difference to the size of its device for which an ext4 file system grows, in bytes.
const GROWTH_MIN: u64 = 1 << 20;

/// The contents of a device, by their signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeviceContents {
    /// No known signature. That does not mean that the device is blank.
    Unknown,
    /// A file system of this kind.
    FileSystem(String),
    /// Something else, with its description.
    Other(String),
}

/// Returns the contents of a device.
///
/// # Errors
/// If `blkid` fails.
pub(crate) async fn probe(device: &Path) -> Result<DeviceContents, HostError> {
    let arguments = [OsStr::new("--probe"), OsStr::new("--output"), OsStr::new("export"), device.as_os_str()];
    let end = program::run("blkid", &arguments).await?;
    match end.code() {
        0 => Ok(parse(&end.output)),
        BLKID_NOTHING => Ok(DeviceContents::Unknown),
        _ => Err(end.failure()),
    }
}

fn parse(output: &str) -> DeviceContents {
    let value = |key: &str| {
        output.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('=')).map(str::to_owned)
    };
    match (value("TYPE"), value("USAGE").as_deref(), value("PTTYPE")) {
        (Some(kind), Some("filesystem"), None) => DeviceContents::FileSystem(kind),
        (Some(kind), ..) => DeviceContents::Other(kind),
        (None, _, Some(table)) => DeviceContents::Other(format!("partition table ({table})")),
        (None, _, None) => DeviceContents::Unknown,
    }
}

/// Makes a file system on a blank device. The programs refuse a device with a signature.
///
/// # Errors
/// If the program fails.
pub(crate) async fn format(device: &Path, file_system: &str) -> Result<(), HostError> {
    // The volume is blank, so that there is nothing to discard.
    let options: &[&str] = match file_system {
        "xfs" => &["-q", "-K"],
        _ => &["-q", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"],
    };
    let mut arguments: Vec<&OsStr> = options.iter().map(OsStr::new).collect();
    arguments.push(device.as_os_str());
    program::succeed(&format!("mkfs.{file_system}"), &arguments).await.map(drop)
}

/// Checks the file system of a device that is not mounted, and repairs it where that is safe. XFS
/// repairs itself when it is mounted.
///
/// # Errors
/// If errors remain that only a person can repair.
pub(crate) async fn check(device: &Path, file_system: &str) -> Result<(), HostError> {
    if file_system != "ext4" {
        return Ok(());
    }
    let end = program::run("fsck.ext4", &[OsStr::new("-p"), device.as_os_str()]).await?;
    if (0..=FSCK_REPAIRED).contains(&end.code()) { Ok(()) } else { Err(end.failure()) }
}

/// Grows the file system of a device that is not mounted, if it is smaller than the device. XFS
/// grows only while it is mounted.
///
/// # Errors
/// If a program fails.
pub(crate) async fn grow_unmounted(device: &Path, file_system: &str, size: u64) -> Result<(), HostError> {
    if file_system != "ext4" {
        return Ok(());
    }
    let header = program::succeed("dumpe2fs", &[OsStr::new("-h"), device.as_os_str()]).await?;
    let number = |key: &str| -> Option<u64> {
        header.lines().find_map(|line| line.strip_prefix(key))?.trim().parse().ok()
    };
    let (Some(blocks), Some(block)) = (number("Block count:"), number("Block size:")) else { return Ok(()) };
    // The last blocks may be too few for a group of their own.
    if size.saturating_sub(blocks.saturating_mul(block)) < GROWTH_MIN {
        return Ok(());
    }
    let end = program::run("fsck.ext4", &[OsStr::new("-p"), OsStr::new("-f"), device.as_os_str()]).await?;
    if !(0..=FSCK_REPAIRED).contains(&end.code()) {
        return Err(end.failure());
    }
    program::succeed("resize2fs", &[device.as_os_str()]).await.map(drop)
}

/// Grows a mounted file system to the size of its device. Does nothing if it has that size.
///
/// # Errors
/// If the program fails.
pub(crate) async fn grow(device: &Path, mounted_at: &Path, file_system: &str) -> Result<(), HostError> {
    match file_system {
        "xfs" => program::succeed("xfs_growfs", &[OsStr::new("-d"), mounted_at.as_os_str()]).await.map(drop),
        _ => program::succeed("resize2fs", &[device.as_os_str()]).await.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_system_alone_counts_as_one() {
        let cases = [
            ("", DeviceContents::Unknown),
            ("TYPE=xfs\nUSAGE=filesystem\n", DeviceContents::FileSystem("xfs".into())),
            ("TYPE=LVM2_member\nUSAGE=raid\n", DeviceContents::Other("LVM2_member".into())),
            ("TYPE=crypto_LUKS\nUSAGE=crypto\n", DeviceContents::Other("crypto_LUKS".into())),
            ("PTTYPE=gpt\n", DeviceContents::Other("partition table (gpt)".into())),
            ("TYPE=vfat\nUSAGE=filesystem\nPTTYPE=dos\n", DeviceContents::Other("vfat".into())),
        ];
        for (output, expected) in cases {
            assert_eq!(parse(output), expected, "{output}");
        }
    }
}
