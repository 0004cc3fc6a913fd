//! The body of an object that is not committed yet.

use crate::space::StoredBody;

/// A body of a change.
#[derive(Debug)]
pub enum Body {
    /// Bytes in memory.
    Bytes(Vec<u8>),
    /// A body that a [`crate::BodyWriter`] has stored. Its space is freed if it is dropped.
    Stored(StoredBody),
}

impl Body {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Stored(stored) => stored.len(),
        }
    }

    /// True for a body without bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
