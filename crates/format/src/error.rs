//! Why bytes are not what they should be.

/// What is wrong with an on-disk structure. Callers match on it to tell "nothing of ours" from "ours, but damaged".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The magic number is missing: these bytes were never this structure (or their start is damaged).
    #[error("no magic number")]
    BadMagic,
    /// Written by another version of the format.
    #[error("format version {found}, this release reads version {}", crate::FORMAT_VERSION)]
    Version {
        /// The version that the bytes claim.
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
    /// Intact, but it belongs somewhere else (another pool, segment, row or life of the segment).
    #[error("belongs elsewhere: wrong {0}")]
    Misplaced(&'static str),
}

/// Asserts that what is about to be stored meets the demands by which decoding judges it.
///
/// # Panics
/// If it does not: a writer would store what no reader accepts.
#[track_caller]
pub(crate) fn assert_storable<T>(checked: Result<T, FormatError>) -> T {
    match checked {
        Ok(value) => value,
        Err(error) => panic!("the encoder was given an {error}"),
    }
}
