//! The error of the API: a kind for programs, a message for people, and a hint.
//!
//! Invariants: the message names its object (pool, volume, drive, file); the hint names an action
//! that the reader can take.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Kind of an error, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is invalid.
    Invalid,
    /// The body of the request is too large.
    TooLarge,
    /// No such pool, volume, drive, export or operation exists.
    NotFound,
    /// The name is already in use.
    Exists,
    /// The object is in use, or another operation is changing it.
    Busy,
    /// A drive holds data that would be destroyed.
    Occupied,
    /// The daemon lacks a permission of the operating system.
    Denied,
    /// The request has no valid token or session.
    Unauthenticated,
    /// The role of the client does not permit the request.
    Forbidden,
    /// The sender has failed to authenticate too often, and has to wait.
    TooManyAttempts,
    /// There is not enough space.
    NoSpace,
    /// The pool is not open.
    NotOpen,
    /// The drives hold no pool, drives of different pools, or too few drives of a pool.
    NotAPool,
    /// Drives of the pool are missing, and the pool can be opened without them on request.
    Incomplete,
    /// The drives hold an older state of the pool than this host has used.
    Stale,
    /// The pool refuses writes because too many drives are missing or failed.
    PoolFailed,
    /// A drive or file failed.
    Io,
    /// Stored data is damaged and cannot be reconstructed.
    Corrupt,
    /// The data was written by another version of the on-disk format.
    Version,
    /// The operation was cancelled.
    Cancelled,
    /// The daemon is shutting down.
    ShuttingDown,
    /// The client cannot reach the daemon.
    Unreachable,
    /// A bug.
    Internal,
}

impl ErrorKind {
    /// Returns true if a drive, stored data or the daemon is faulty, and false if the request does
    /// not fit the current state.
    pub fn is_fault(self) -> bool {
        match self {
            Self::Io | Self::Corrupt | Self::PoolFailed | Self::Internal => true,
            Self::Invalid
            | Self::TooLarge
            | Self::NotFound
            | Self::Exists
            | Self::Busy
            | Self::Occupied
            | Self::Denied
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::TooManyAttempts
            | Self::NoSpace
            | Self::NotOpen
            | Self::NotAPool
            | Self::Incomplete
            | Self::Stale
            | Self::Version
            | Self::Cancelled
            | Self::ShuttingDown
            | Self::Unreachable => false,
        }
    }
}

/// An error of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Error {
    /// Kind of the error, for programs.
    kind: ErrorKind,
    /// Description of the error, for people. It names the object concerned.
    message: String,
    /// The action that solves the problem, if one is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    hint: Option<String>,
}

/// Result of a call of the API.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns an error without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// Returns the error with this hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Returns the error with `context` before its message.
    #[must_use]
    pub fn context(self, context: impl fmt::Display) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }

    /// Returns the kind, for control flow.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the hint, if there is one.
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
