//! Inspection of a drive before it is used: its kind, its users and its contents.
//!
//! Owns all reasons to refuse a drive. Invariant: only [`wipe()`] writes. Must not know: how pools
//! are opened.

mod blkid;
mod contents;
mod openers;
mod signatures;
mod stable;
#[cfg(test)]
mod tests;
mod usage;
mod wipe;

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(crate) use openers::{Openers, PoolDrives};
pub(crate) use signatures::Signature;
pub(crate) use stable::{all_by_id, stable_path};
pub(crate) use wipe::wipe;

use crate::error::{Error, ErrorKind, Result};

/// A key that is the same for all paths of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum DriveKey {
    /// A block device, by its device number.
    Device(u64),
    /// A file, by the device number of its file system and its inode number.
    File(u64, u64),
}

/// The result of an inspection.
#[derive(Clone, Debug)]
pub(crate) struct Inspection {
    /// The path as it was given.
    pub(crate) path: PathBuf,
    /// The key of the drive.
    pub(crate) key: DriveKey,
    /// The capacity in bytes.
    pub(crate) size: u64,
    /// The users of the drive. A drive with users is refused.
    pub(crate) users: Vec<String>,
    /// The contents of the drive. A drive with contents is refused unless they may be erased.
    pub(crate) contents: Vec<Signature>,
}

impl Inspection {
    /// Returns `block device` or `file`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.key {
            DriveKey::Device(_) => "block device",
            DriveKey::File(..) => "file",
        }
    }

    /// Returns true if the drive has users.
    pub(crate) fn is_used(&self) -> bool {
        !self.users.is_empty()
    }

    /// Describes the contents for messages.
    pub(crate) fn contents_text(&self) -> String {
        let text = |signature: &Signature| match signature.offset {
            Some(offset) => format!("{} (at byte {offset})", signature.description),
            None => signature.description.to_string(),
        };
        self.contents.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

/// Inspects a drive. Blocks the thread.
///
/// # Errors
/// When the path does not exist, is neither a block device nor a file, or cannot be read.
pub(crate) fn inspect(path: &Path, openers: &Openers) -> Result<Inspection> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    let key = key_of(path, &metadata)?;
    let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let size = size_of(&mut file).map_err(|error| unreadable(path, &error))?;
    let users = users_of(key, &file, openers);
    let contents = contents_of(path, &file, size).map_err(|error| unreadable(path, &error))?;
    Ok(Inspection { path: path.to_owned(), key, size, users, contents })
}

/// Returns descriptions of the users of a drive.
///
/// # Errors
/// When the path does not exist, or is neither a block device nor a file.
pub(crate) fn users(path: &Path, openers: &Openers) -> Result<Vec<String>> {
    Ok(usage::users(drive_key(path)?, openers))
}

fn users_of(key: DriveKey, file: &File, openers: &Openers) -> Vec<String> {
    let mut users = usage::users(key, openers);
    // The kernel also knows about processes that this one may not inspect. Drives that this process
    // has open itself are not counted.
    if users.is_empty() && !openers.is_own(key) && reactor::is_open_for_writing(file) == Some(true) {
        users.push("a process has it open for writing".into());
    }
    users
}

/// Returns the contents of a drive: known signatures, else the result of blkid, else non-zero data.
fn contents_of(path: &Path, file: &File, size: u64) -> std::io::Result<Vec<Signature>> {
    let known = signatures::find(file, size)?;
    if !known.is_empty() {
        return Ok(known);
    }
    if let Some(description) = blkid::probe(blkid::PROGRAM, path) {
        return Ok(vec![Signature { description: description.into(), offset: None }]);
    }
    Ok(contents::find(file, size)?.into_iter().collect())
}

/// Returns the key of the drive at a path.
///
/// # Errors
/// When the path does not exist, or is neither a block device nor a file.
pub(crate) fn drive_key(path: &Path) -> Result<DriveKey> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    key_of(path, &metadata)
}

fn key_of(path: &Path, metadata: &Metadata) -> Result<DriveKey> {
    let kind = metadata.file_type();
    if kind.is_block_device() {
        return Ok(DriveKey::Device(metadata.rdev()));
    }
    if kind.is_file() {
        return Ok(DriveKey::File(metadata.dev(), metadata.ino()));
    }
    let noun = if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else {
        "neither a block device nor a file"
    };
    let hint = if kind.is_char_device() && path.to_string_lossy().contains("nvme") {
        "use the NVMe namespace, such as /dev/nvme0n1, instead of the controller /dev/nvme0"
    } else {
        "use a block device, or a regular file created for the pool"
    };
    Err(Error::new(ErrorKind::Invalid, format!("{} is {noun}", path.display())).hint(hint))
}

fn size_of(file: &mut File) -> std::io::Result<u64> {
    use std::io::Seek;
    file.seek(std::io::SeekFrom::End(0))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    use std::io::ErrorKind as Io;
    let (kind, hint) = match error.kind() {
        Io::NotFound => (ErrorKind::NotFound, "'lsblk' lists the drives of this host"),
        Io::PermissionDenied => {
            (ErrorKind::Denied, "give the daemon's user permission to read and write the drive")
        }
        _ => (ErrorKind::Io, "see the kernel log ('dmesg') for details"),
    };
    Error::new(kind, format!("cannot inspect {}: {error}", path.display())).hint(hint)
}
