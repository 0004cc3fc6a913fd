//! Why something could not be done to a machine: a kind, a sentence, and what to do about it.

use std::fmt;
use std::path::Path;

/// What went wrong, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// It makes no sense as it stands.
    Invalid,
    /// No such machine, template or file.
    NotFound,
    /// The name is taken.
    Exists,
    /// The machine runs, or does not, or something else is being done to it.
    Busy,
    /// A file or a socket.
    Io,
    /// QEMU does not start, or does not do what it is told.
    Qemu,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
}

/// A result of this room.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// With something that can be done about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Of a file or directory.
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::new(ErrorKind::Io, format!("{}: {error}", path.display()))
    }

    /// What went wrong, for programs.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What can be done about it.
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
