//! Errors of the node's kernel and programs.

use std::io;
use std::path::{Path, PathBuf};

use tonic::Status;

/// An error of a file, a device or a program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    /// An operation on a file failed.
    #[error("{}: cannot {action}: {error}", path.display())]
    File { path: PathBuf, action: &'static str, error: io::Error },
    /// A program could not be started.
    #[error("cannot start '{program}': {error}")]
    Start { program: String, error: io::Error },
    /// A program failed.
    #[error("'{command}' failed with {status}: {output}")]
    Program { command: String, status: String, output: String },
}

impl HostError {
    /// Returns a function that makes the error of an operation on `path`.
    pub(crate) fn at<E: Into<io::Error>>(path: &Path, action: &'static str) -> impl FnOnce(E) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, action, error: error.into() }
    }
}

impl From<HostError> for Status {
    fn from(error: HostError) -> Self {
        Self::internal(error.to_string())
    }
}
