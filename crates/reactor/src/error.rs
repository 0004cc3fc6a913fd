//! Errors of an I/O operation.
//!
//! Maps an errno to the few kinds that callers act on. The error does not name the drive or offset:
//! the caller adds them.

use std::fmt;

/// The kinds of failure that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The medium failed to read or write these bytes; others may still work (EIO, ENODATA, EILSEQ,
    /// EREMOTEIO).
    Medium,
    /// The backing store is full (ENOSPC, EDQUOT, EFBIG).
    NoSpace,
    /// The device is gone and will not respond again (ENODEV, ENXIO, ESHUTDOWN).
    Gone,
    /// The range reaches past the end of the device or file.
    OutOfRange,
    /// The device or file is not writable (EROFS, EPERM, EACCES, EBADF on a read-only descriptor).
    ReadOnly,
    /// The operation is not supported here (EOPNOTSUPP, ENOSYS, ENOTTY).
    Unsupported,
    /// The peer closed or reset the socket, or the operation was cancelled.
    Closed,
    /// Any other failure; see the errno.
    Other,
}

/// A failed operation: a kind to match on, and the errno (0 if no system call failed).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IoError {
    kind: IoErrorKind,
    errno: i32,
}

impl IoError {
    /// Returns an error that no system call reported.
    pub const fn new(kind: IoErrorKind) -> Self {
        Self { kind, errno: 0 }
    }

    /// Returns the error of a system call that failed with `errno` (a positive number).
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

    /// Returns the kind, for control flow.
    pub const fn kind(self) -> IoErrorKind {
        self.kind
    }

    /// Returns the errno; 0 if no system call failed.
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
