//! Errors of decoding.

/// The reason why bytes are not a valid on-disk structure. Callers match on it to distinguish
/// foreign bytes from a damaged structure of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The magic number is wrong: the bytes are not this structure, or their start is damaged.
    #[error("bad magic number")]
    BadMagic,
    /// The bytes were written by another version of the format.
    #[error("format version {found}; this release reads version {}", crate::FORMAT_VERSION)]
    Version {
        /// The version in the bytes.
        found: u32,
    },
    /// The checksum or MAC does not match the bytes.
    #[error("checksum mismatch")]
    Checksum,
    /// The bytes end before the structure does.
    #[error("truncated")]
    Truncated,
    /// A field has a value that no correct writer stores.
    #[error("invalid {0}")]
    Invalid(&'static str),
}

/// Unwraps the result of a validity check before encoding.
///
/// # Panics
/// If the check failed: the bytes would be stored, and no reader would accept them.
#[track_caller]
pub(crate) fn assert_storable<T>(checked: Result<T, FormatError>) -> T {
    match checked {
        Ok(value) => value,
        Err(error) => panic!("the encoder was given an {error}"),
    }
}
