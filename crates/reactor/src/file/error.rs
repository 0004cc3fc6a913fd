//! Errors of opening or creating a drive.

use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

/// The kinds of failure that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenDriveErrorKind {
    /// The path does not exist, or no device is behind it.
    NotFound,
    /// This process lacks the permission.
    Denied,
    /// Another process, another handle or a mounted file system uses the drive.
    InUse,
    /// The file is neither a block device nor a regular file.
    NotADrive,
    /// The file or device has a size of zero.
    Empty,
    /// The device has logical sectors of more than 4096 bytes.
    LargeSectors,
    /// The file or device is write-protected.
    ReadOnly,
    /// The file to create already exists.
    Exists,
    /// The file system has no room for a file of that size.
    NoSpace,
    /// Any other failure; see the source.
    Other,
}

/// A drive that could not be opened or created.
#[derive(Debug)]
pub struct OpenDriveError {
    kind: OpenDriveErrorKind,
    path: PathBuf,
    operation: &'static str,
    source: Option<std::io::Error>,
}

impl OpenDriveError {
    pub(super) fn new(kind: OpenDriveErrorKind, path: &Path, operation: &'static str) -> Self {
        Self { kind, path: path.to_owned(), operation, source: None }
    }

    pub(super) fn from_errno(errno: Errno, path: &Path, operation: &'static str) -> Self {
        use OpenDriveErrorKind as Kind;
        let kind = match errno {
            Errno::NOENT | Errno::NXIO | Errno::NODEV | Errno::NOTDIR | Errno::NOMEDIUM => Kind::NotFound,
            Errno::ACCESS | Errno::PERM => Kind::Denied,
            Errno::BUSY | Errno::AGAIN | Errno::TXTBSY => Kind::InUse,
            Errno::ROFS => Kind::ReadOnly,
            Errno::EXIST => Kind::Exists,
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Kind::NoSpace,
            _ => Kind::Other,
        };
        Self { source: Some(errno.into()), ..Self::new(kind, path, operation) }
    }

    /// Returns the kind, for control flow.
    pub fn kind(&self) -> OpenDriveErrorKind {
        self.kind
    }

    /// Returns the drive's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for OpenDriveErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "it does not exist",
            Self::Denied => "permission denied",
            Self::InUse => "it is in use by another process",
            Self::NotADrive => "it is neither a block device nor a regular file",
            Self::Empty => "its size is zero",
            Self::LargeSectors => "its sectors are larger than 4096 bytes",
            Self::ReadOnly => "it is write-protected",
            Self::Exists => "it already exists",
            Self::NoSpace => "the file system is full",
            Self::Other => "unexpected error",
        })
    }
}

impl fmt::Display for OpenDriveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {} {}: {}", self.operation, self.path.display(), self.kind)
    }
}

impl std::error::Error for OpenDriveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
