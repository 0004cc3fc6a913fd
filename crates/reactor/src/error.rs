//! What can go wrong with one I/O operation.
//!
//! Owns the mapping from errno to the few kinds that callers act on. The error says nothing of drives or files: whoever
//! knows which drive and which offset adds that.

use std::fmt;

/// The kinds of failure that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The medium could not give or take these bytes; others may still work (EIO, ENODATA, EILSEQ, EREMOTEIO).
    Medium,
    /// The backing store has no room (ENOSPC, EDQUOT, EFBIG).
    NoSpace,
    /// The device is gone and will not answer again (ENODEV, ENXIO, ESHUTDOWN).
    Gone,
    /// Fewer bytes exist than were asked for, or the range ends past the device.
    OutOfRange,
    /// The device or file may not be written (EROFS, EPERM, EACCES, EBADF on a read-only descriptor).
    ReadOnly,
    /// The operation is not supported here (EOPNOTSUPP, ENOSYS, ENOTTY).
    Unsupported,
    /// The other end of a socket closed or reset it, or the operation was cancelled.
    Closed,
    /// Anything else; the errno says what.
    Other,
}

/// A failed operation: a kind to match on and the errno it came from (0 where the operating system was not involved).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IoError {
    kind: IoErrorKind,
    errno: i32,
}

impl IoError {
    /// An error that no system call reported.
    pub const fn new(kind: IoErrorKind) -> Self {
        Self { kind, errno: 0 }
    }

    /// The error of a system call that failed with `errno` (a positive number).
    pub fn from_errno(errno: i32) -> Self {
        use rustix::io::Errno;
        let kind = match Errno::from_raw_os_error(errno) {
            Errno::IO | Errno::NODATA | Errno::ILSEQ | Errno::REMOTEIO | Errno::BADMSG | Errno::TIMEDOUT => {
                IoErrorKind::Medium
            }
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => IoErrorKind::NoSpace,
            Errno::NODEV | Errno::NXIO | Errno::SHUTDOWN => IoErrorKind::Gone,
            Errno::ROFS | Errno::PERM | Errno::ACCESS | Errno::BADF => IoErrorKind::ReadOnly,
            Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => IoErrorKind::Unsupported,
            Errno::PIPE | Errno::CONNRESET | Errno::CONNABORTED | Errno::NOTCONN | Errno::CANCELED => {
                IoErrorKind::Closed
            }
            _ => IoErrorKind::Other,
        };
        Self { kind, errno }
    }

    /// The kind, for control flow.
    pub const fn kind(self) -> IoErrorKind {
        self.kind
    }

    /// The errno, 0 if no system call was involved.
    pub const fn errno(self) -> i32 {
        self.errno
    }
}

impl From<rustix::io::Errno> for IoError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::from_errno(errno.raw_os_error())
    }
}

impl From<IoError> for std::io::Error {
    fn from(error: IoError) -> Self {
        if error.errno != 0 {
            return Self::from_raw_os_error(error.errno);
        }
        Self::other(error)
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.errno != 0 {
            return fmt::Display::fmt(&std::io::Error::from_raw_os_error(self.errno), f);
        }
        f.write_str(match self.kind {
            IoErrorKind::Medium => "medium error",
            IoErrorKind::NoSpace => "no space",
            IoErrorKind::Gone => "device is gone",
            IoErrorKind::OutOfRange => "out of range",
            IoErrorKind::ReadOnly => "read-only",
            IoErrorKind::Unsupported => "not supported",
            IoErrorKind::Closed => "closed",
            IoErrorKind::Other => "failed",
        })
    }
}

impl fmt::Debug for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({}: {self})", self.kind, self.errno)
    }
}

impl std::error::Error for IoError {}
