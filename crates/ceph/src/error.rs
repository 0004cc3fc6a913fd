//! Errors of operations on clusters: a kind, a message, and a hint for the user.

use std::fmt;
use std::path::Path;

/// The kind of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An invalid name, file or option.
    Invalid,
    /// There is no such cluster, host, drive or image.
    NotFound,
    /// The name is in use.
    Exists,
    /// Another command changes the cluster, or the object is in use.
    Busy,
    /// The operation would put data at risk.
    Unsafe,
    /// The cluster has no space for new data.
    NoSpace,
    /// The image refuses writes, or another client has its lock.
    ReadOnly,
    /// A host or the cluster does not answer.
    Unreachable,
    /// A file, program or host failed.
    Io,
}

/// An error of a cluster operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns an error without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// Adds a hint: an action that may resolve the error.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Returns an error of a file or directory.
    pub fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::Io, format!("{}: {error}", path.display()))
    }

    /// Returns the kind, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the hint.
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
