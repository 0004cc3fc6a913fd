//! Looking at a drive before it is used: what it is, who uses it, what it holds.
//!
//! Owns every reason not to take a drive. Always true: nothing here writes, but [`wipe`]. Must not know: pools in service.

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

pub(crate) use openers::Openers;
pub(crate) use signatures::Signature;
pub(crate) use stable::{all_by_id, stable_path};
pub(crate) use wipe::wipe;

use crate::error::{Error, ErrorKind, Result};

/// What two names of the same drive have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Sameness {
    /// A block device, by its number.
    Device(u64),
    /// A file, by its filesystem and inode.
    File(u64, u64),
}

/// What was seen of a drive.
#[derive(Clone, Debug)]
pub(crate) struct Inspection {
    /// The path as it was given.
    pub(crate) path: PathBuf,
    /// Which drive it is, whatever it is called.
    pub(crate) same: Sameness,
    /// Capacity in bytes.
    pub(crate) size: u64,
    /// Who uses it: such a drive cannot be had.
    pub(crate) users: Vec<String>,
    /// What it holds: that would be destroyed.
    pub(crate) holds: Vec<Signature>,
}

impl Inspection {
    /// `block device` or `file`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.same {
            Sameness::Device(_) => "block device",
            Sameness::File(..) => "file",
        }
    }

    /// What it holds, in words.
    pub(crate) fn holdings(&self) -> String {
        let one = |found: &Signature| match found.offset {
            Some(offset) => format!("{} (at byte {offset})", found.what),
            None => found.what.to_string(),
        };
        self.holds.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Looks at a drive. Blocks the thread.
///
/// # Errors
/// When it is not there, is no drive, or cannot be read.
pub(crate) fn inspect(path: &Path, openers: &Openers) -> Result<Inspection> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    let same = sameness(path, &metadata)?;
    let mut file = File::open(path).map_err(|error| unreadable(path, &error))?;
    let size = size_of(&mut file).map_err(|error| unreadable(path, &error))?;
    let users = users_of(same, &file, openers);
    let holds = holdings(path, &file, size).map_err(|error| unreadable(path, &error))?;
    Ok(Inspection { path: path.to_owned(), same, size, users, holds })
}

/// Who uses a drive, in words that name them.
///
/// # Errors
/// When it is not there, or is no drive.
pub(crate) fn users(path: &Path, openers: &Openers) -> Result<Vec<String>> {
    Ok(usage::users(which(path)?, openers))
}

fn users_of(same: Sameness, file: &File, openers: &Openers) -> Vec<String> {
    let mut users = usage::users(same, openers);
    // The kernel knows of processes that we may not look into. What this daemon has open is its own concern.
    if users.is_empty() && !openers.is_own(same) && reactor::is_open_for_writing(file) == Some(true) {
        users.push("a process has it open for writing".into());
    }
    users
}

/// What a drive holds: known marks, or what the system finds, or whatever is not zeros.
fn holdings(path: &Path, file: &File, size: u64) -> std::io::Result<Vec<Signature>> {
    let known = signatures::find(file, size)?;
    if !known.is_empty() {
        return Ok(known);
    }
    if let Some(what) = blkid::ask(blkid::PROGRAM, path) {
        return Ok(vec![Signature { what: what.into(), offset: None }]);
    }
    Ok(contents::find(file, size)?.into_iter().collect())
}

/// Which drive a path names.
///
/// # Errors
/// When it is not there, or is no drive.
pub(crate) fn which(path: &Path) -> Result<Sameness> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    sameness(path, &metadata)
}

fn sameness(path: &Path, metadata: &Metadata) -> Result<Sameness> {
    let kind = metadata.file_type();
    if kind.is_block_device() {
        return Ok(Sameness::Device(metadata.rdev()));
    }
    if kind.is_file() {
        return Ok(Sameness::File(metadata.dev(), metadata.ino()));
    }
    let what = if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else {
        "neither a block device nor a file"
    };
    let hint = if kind.is_char_device() && path.to_string_lossy().contains("nvme") {
        "an NVMe drive's data is behind its namespace: /dev/nvme0n1, not /dev/nvme0"
    } else {
        "give block devices, or files made for the purpose"
    };
    Err(Error::new(ErrorKind::Invalid, format!("{} is {what}", path.display())).hint(hint))
}

fn size_of(file: &mut File) -> std::io::Result<u64> {
    use std::io::Seek;
    file.seek(std::io::SeekFrom::End(0))
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    use std::io::ErrorKind as Io;
    let (kind, hint) = match error.kind() {
        Io::NotFound => (ErrorKind::NotFound, "'lsblk' lists the drives that this machine has"),
        Io::PermissionDenied => (ErrorKind::Denied, "the daemon's user must be able to read and write it"),
        _ => (ErrorKind::Io, "the kernel log ('dmesg') says more"),
    };
    Error::new(kind, format!("cannot look at {}: {error}", path.display())).hint(hint)
}
