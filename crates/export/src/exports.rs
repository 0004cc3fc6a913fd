//! The names under which volumes are exported.
//!
//! Owns the [`Exports`] trait. Always true: a name is looked up again for each connection. Must not
//! know protocols.

use std::borrow::Cow;
use std::future::Future;

use crate::Volume;

/// The volumes that clients of one reactor may open.
///
/// Names are UTF-8, not empty, without NUL and up to 4096 bytes long. A client that sends no name
/// gets the only export, if [`Exports::list`] returns exactly one.
pub trait Exports {
    /// The type of the volumes.
    type Volume: Volume + 'static;

    /// Opens the volume of this name for one client.
    ///
    /// # Errors
    /// `NotFound`, `Denied`, `Unavailable`.
    fn open(&self, name: &str) -> impl Future<Output = Result<OpenExport<Self::Volume>, OpenError>>;

    /// Returns the exports that clients may list, in display order.
    fn list(&self) -> impl Future<Output = Vec<ListedExport>>;
}

/// A volume that is open for one client, until it is dropped.
#[derive(Clone, Debug)]
pub struct OpenExport<V> {
    /// The volume.
    pub volume: V,
    /// A description for people; may be empty.
    pub description: String,
}

/// An entry of a list of exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExport {
    /// The name.
    pub name: String,
    /// A description for people; may be empty.
    pub description: String,
}

/// The reason why an export could not be opened, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenErrorKind {
    /// There is no export of this name.
    NotFound,
    /// The export exists, but this client may not use it, or another client uses it now.
    Denied,
    /// The export exists, but cannot be served at present.
    Unavailable,
}

/// An export that could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OpenError {
    kind: OpenErrorKind,
    message: Cow<'static, str>,
}

impl OpenError {
    /// An error with a message for people.
    pub fn new(kind: OpenErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The kind, for control flow.
    pub fn kind(&self) -> OpenErrorKind {
        self.kind
    }

    /// The message, for people.
    pub fn message(&self) -> &str {
        &self.message
    }
}
