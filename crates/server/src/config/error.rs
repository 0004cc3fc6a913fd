//! Errors of the configuration.

use std::path::PathBuf;

/// An invalid configuration: the place and the reason.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is not valid TOML.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The message of the parser, with line and column.
        message: String,
    },
    /// A key that is not in the table of keys.
    #[error("{}:{line}: unknown key '{key}'{}", path.display(), suggestion(near.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The line of the key, counted from 1.
        line: usize,
        /// The key, with its section.
        key: String,
        /// The known key with the most similar name.
        near: Option<String>,
    },
    /// An invalid value.
    #[error("{place}: {reason}")]
    Value {
        /// The place of the value: line and key in the file, environment variable or flag.
        place: String,
        /// The reason why the value is refused.
        reason: String,
    },
    /// Two settings that exclude each other.
    #[error("{0}")]
    Conflict(String),
}

impl ConfigError {
    pub(super) fn value(place: String, reason: String) -> Self {
        Self::Value { place, reason }
    }
}

fn suggestion(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"))
}
