//! Errors of machine operations: a kind, a message, and a hint for the user.

use std::fmt;
use std::path::Path;

/// The kind of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An invalid value or definition.
    Invalid,
    /// There is no such machine, template or file.
    NotFound,
    /// The name is in use.
    Exists,
    /// The machine is running, not running, or being changed by another command.
    Busy,
    /// An error of a file or a socket.
    Io,
    /// QEMU does not start, or refuses a command.
    Qemu,
}

/// An error of a machine operation.
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
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
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
