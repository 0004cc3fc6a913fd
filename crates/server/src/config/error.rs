//! Why a configuration is none.

use std::path::PathBuf;

/// What is wrong with the configuration, and where.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is no TOML.
    #[error("{}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line and column, and what is wrong there.
        message: String,
    },
    /// There is no such key.
    #[error("{}:{line}: there is no key '{key}'{}", path.display(), suggestion(near.as_deref()))]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The key, with its section.
        key: String,
        /// The key that was probably meant.
        near: Option<String>,
    },
    /// A value makes no sense. `place` is a line of the file, a variable or a flag.
    #[error("{place}: {wrong}")]
    Value {
        /// Where it stands.
        place: String,
        /// What is wrong with it.
        wrong: String,
    },
    /// Two settings cannot both hold.
    #[error("{0}")]
    Contradiction(String),
}

impl ConfigError {
    pub(super) fn value(place: String, wrong: String) -> Self {
        Self::Value { place, wrong }
    }
}

fn suggestion(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean '{near}'?"))
}
