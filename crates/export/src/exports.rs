//! Which volumes are offered, under which names.
//!
//! Owns the [`Exports`] trait. Always true: a name is what a client asks for and what is logged; what it stands for is
//! looked up anew for every connection. Must not know protocols.

use std::borrow::Cow;
use std::future::Future;

use crate::Volume;

/// The volumes that clients of one reactor may use.
///
/// Names are UTF-8, not empty, without NUL and at most 4096 bytes long. Clients that name none get the only export if
/// there is exactly one: whoever looks names up sees to that, see [`Exports::list`].
pub trait Exports {
    /// What is served.
    type Volume: Volume + 'static;

    /// Opens the volume of this name for one client.
    ///
    /// # Errors
    /// `NotFound`, `Denied`, `Unavailable`.
    fn open(&self, name: &str) -> impl Future<Output = Result<OpenExport<Self::Volume>, OpenError>>;

    /// Every export that clients may know of, in the order in which they are to be shown.
    fn list(&self) -> impl Future<Output = Vec<ListedExport>>;
}

/// A volume that is open for one client, until it is dropped.
#[derive(Clone, Debug)]
pub struct OpenExport<V> {
    /// What is served.
    pub volume: V,
    /// What it is, for people; may be empty.
    pub description: String,
}

/// An export's entry in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedExport {
    /// Its name.
    pub name: String,
    /// What it is, for people; may be empty.
    pub description: String,
}

/// Why an export could not be opened, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenErrorKind {
    /// There is none of this name.
    NotFound,
    /// It exists, but this client may not use it, or not now: another one does.
    Denied,
    /// It exists, but cannot be served at present.
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
