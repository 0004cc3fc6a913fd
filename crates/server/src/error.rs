//! What the daemon answers when it cannot do what was asked: a kind, a sentence, and what to do about it.
//!
//! Always true: the message names what it is about (pool, volume, drive, file); the hint is a thing that can be done.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What went wrong, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request makes no sense as it stands.
    Invalid,
    /// No such pool, volume, drive, export or operation.
    NotFound,
    /// The name is taken.
    Exists,
    /// It is in use, or something else is being done to it.
    Busy,
    /// A drive holds something that would be destroyed.
    Occupied,
    /// The system does not let the daemon do this.
    Denied,
    /// There is no room.
    NoSpace,
    /// The pool is not open.
    NotOpen,
    /// The drives hold no pool, parts of different ones, or too few of one.
    NotAPool,
    /// Drives of the pool are missing, though it could do without them.
    Incomplete,
    /// The drives hold an older state of the pool than this host has used.
    Stale,
    /// So many drives are lost that the pool takes no more writes.
    PoolFailed,
    /// A drive or file failed.
    Io,
    /// Stored bytes are damaged and cannot be given back.
    Corrupt,
    /// Written by another version of the format.
    Version,
    /// The daemon is shutting down.
    ShuttingDown,
    /// A bug.
    Internal,
}

impl ErrorKind {
    /// True if something is broken: a drive, what is stored, or the daemon. Otherwise things are merely not as the
    /// request supposes.
    pub fn is_fault(self) -> bool {
        match self {
            Self::Io | Self::Corrupt | Self::PoolFailed | Self::Internal => true,
            Self::Invalid
            | Self::NotFound
            | Self::Exists
            | Self::Busy
            | Self::Occupied
            | Self::Denied
            | Self::NoSpace
            | Self::NotOpen
            | Self::NotAPool
            | Self::Incomplete
            | Self::Stale
            | Self::Version
            | Self::ShuttingDown => false,
        }
    }
}

/// An error of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Error)]
pub struct Error {
    /// What went wrong, for programs.
    kind: ErrorKind,
    /// What went wrong, for people: it names what it is about.
    message: String,
    /// What to do about it, if that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    hint: Option<String>,
}

/// What the daemon's operations give.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// The same error, with what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The same error, with more said before it.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }

    /// The kind, for control flow.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What to do about it, if that is known.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<engine::Error> for Error {
    fn from(error: engine::Error) -> Self {
        use engine::ErrorKind as Engine;
        let (kind, hint) = match error.kind() {
            Engine::NoSpace => (
                ErrorKind::NoSpace,
                Some("delete volumes or trim data in them, or add room below file drives"),
            ),
            Engine::Io => (
                ErrorKind::Io,
                Some("look at the drive with 'gabion pool status', the kernel log and 'smartctl'"),
            ),
            Engine::Corrupt => (
                ErrorKind::Corrupt,
                Some("'gabion check' on the closed pool's drives shows how far the damage goes"),
            ),
            Engine::PoolFailed => (
                ErrorKind::PoolFailed,
                Some("bring the lost drives back, then 'gabion pool close' and 'gabion pool open' it"),
            ),
            Engine::Closed => (ErrorKind::NotOpen, None),
            Engine::Invalid => (ErrorKind::Invalid, None),
            Engine::NotFound => (ErrorKind::NotFound, None),
            Engine::Exists => (ErrorKind::Exists, None),
            Engine::Busy => (ErrorKind::Busy, None),
            Engine::ReadOnly => {
                (ErrorKind::Invalid, Some("'gabion volume clone' makes a volume of a snapshot"))
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
            Open::NotFound => (ErrorKind::NotFound, "'lsblk' lists the drives that this machine has"),
            Open::Denied => (ErrorKind::Denied, "run the daemon as a user that may read and write it"),
            Open::InUse => (ErrorKind::Busy, "'lsof', 'lsblk' or 'fuser -v' show who uses it"),
            Open::NotADrive => (ErrorKind::Invalid, "give a block device, or a file made for the purpose"),
            Open::Empty => {
                (ErrorKind::Invalid, "give the file a size first, or use --files DIR --file-size SIZE")
            }
            Open::LargeSectors => (ErrorKind::Invalid, "format the drive with sectors of 512 or 4096 bytes"),
            Open::ReadOnly => {
                (ErrorKind::Denied, "make it writable: 'blockdev --setrw' or remount its filesystem")
            }
            Open::Exists => (ErrorKind::Exists, "use another directory, or give the files as drives"),
            Open::NoSpace => (ErrorKind::NoSpace, "use a smaller --file-size, or another filesystem"),
            Open::Other => (ErrorKind::Io, "the kernel log may say more"),
        };
        // Where the kind says it all, the errno adds nothing.
        let said = matches!(error.kind(), Open::NotFound | Open::InUse | Open::Exists | Open::NoSpace);
        let source = std::error::Error::source(&error).filter(|_| !said).map(|source| format!(" ({source})"));
        Self::new(kind, format!("{error}{}", source.unwrap_or_default())).hint(hint)
    }
}
