//! The daemon's error: the API's error, with conversions from the errors of the lower crates.

use std::fmt;
use std::ops::Deref;

pub use api::ErrorKind;

/// An error of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(api::Error);

/// Result of an operation of the daemon.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns an error without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(api::Error::new(kind, message))
    }

    /// Returns the error with this hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self(self.0.hint(hint))
    }

    /// Returns the error with `context` before its message.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        Self(self.0.context(context))
    }
}

impl Deref for Error {
    type Target = api::Error;

    fn deref(&self) -> &api::Error {
        &self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

impl From<api::Error> for Error {
    fn from(error: api::Error) -> Self {
        Self(error)
    }
}

impl From<Error> for api::Error {
    fn from(error: Error) -> Self {
        error.0
    }
}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Self {
        use engine::ErrorKind as Engine;
        let (kind, hint) = match error.kind() {
            Engine::NoSpace => (
                ErrorKind::NoSpace,
                Some("delete volumes, trim data in them, or free space below file drives"),
            ),
            Engine::Io => (
                ErrorKind::Io,
                Some("examine the drive with 'gabion pool status', the kernel log and 'smartctl'"),
            ),
            Engine::Corrupt => (
                ErrorKind::Corrupt,
                Some("close the pool and run 'gabion check' on its drives to list the damage"),
            ),
            Engine::PoolFailed => (
                ErrorKind::PoolFailed,
                Some("reconnect the missing drives, then run 'gabion pool close' and 'gabion pool open'"),
            ),
            Engine::Closed => (ErrorKind::NotOpen, None),
            Engine::Invalid => (ErrorKind::Invalid, None),
            Engine::NotFound => (ErrorKind::NotFound, None),
            Engine::Exists => (ErrorKind::Exists, None),
            Engine::Busy => (ErrorKind::Busy, None),
            Engine::ReadOnly => {
                (ErrorKind::Invalid, Some("'gabion volume clone' creates a writable volume from a snapshot"))
            }
            Engine::NotAPool => (ErrorKind::NotAPool, None),
            Engine::Stale => (ErrorKind::Stale, None),
            Engine::Version => (ErrorKind::Version, None),
        };
        let converted = Self::new(kind, error.to_string());
        match hint {
            Some(hint) => converted.hint(hint),
            None => converted,
        }
    }
}

impl From<reactor::ReactorGone> for Error {
    fn from(_: reactor::ReactorGone) -> Self {
        Self::new(ErrorKind::ShuttingDown, "the daemon is shutting down")
    }
}

impl From<reactor::OpenDriveError> for Error {
    fn from(error: reactor::OpenDriveError) -> Self {
        use reactor::OpenDriveErrorKind as Open;
        let (kind, hint) = match error.kind() {
            Open::NotFound => (ErrorKind::NotFound, "'lsblk' lists the drives of this host"),
            Open::Denied => (ErrorKind::Denied, "run the daemon as a user with read and write permission"),
            Open::InUse => (ErrorKind::Busy, "'lsof', 'lsblk' or 'fuser -v' show its users"),
            Open::NotADrive => (ErrorKind::Invalid, "use a block device or a regular file"),
            Open::Empty => (
                ErrorKind::Invalid,
                "give the file a size with 'truncate', or use --files DIR --file-size SIZE",
            ),
            Open::LargeSectors => (ErrorKind::Invalid, "format the drive with sectors of 512 or 4096 bytes"),
            Open::ReadOnly => {
                (ErrorKind::Denied, "make it writable: 'blockdev --setrw' or remount its filesystem")
            }
            Open::Exists => (ErrorKind::Exists, "use another directory, or name the files with --drives"),
            Open::NoSpace => (ErrorKind::NoSpace, "use a smaller --file-size, or another filesystem"),
            Open::Other => (ErrorKind::Io, "see the kernel log for details"),
        };
        // The message of these kinds is complete without the errno.
        let complete = matches!(error.kind(), Open::NotFound | Open::InUse | Open::Exists | Open::NoSpace);
        let source =
            std::error::Error::source(&error).filter(|_| !complete).map(|source| format!(" ({source})"));
        Self::new(kind, format!("{error}{}", source.unwrap_or_default())).hint(hint)
    }
}
