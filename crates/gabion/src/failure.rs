//! How a command ends: its exit status, and what is printed when it failed.

use std::fmt;
use std::process::ExitCode;

use api::types::ErrorResponse;
use api::{Error, ErrorKind};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done, and all is well.
    Done,
    /// Done, and what was looked at is not well.
    Unwell,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Unwell => Self::from(3),
        }
    }
}

/// The command line makes no sense, in a way that only shows later than its parsing.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Tells why a command failed, and gives its exit status.
pub(crate) fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let status = if error.is::<Usage>() { 2 } else { 1 };
    let of_machines = error.downcast_ref::<vm::Error>().map(known_of_machines);
    let known = match error.downcast_ref::<Error>().cloned().or(of_machines) {
        Some(known) => known,
        None => {
            let kind = if status == 2 { ErrorKind::Invalid } else { ErrorKind::Internal };
            Error::new(kind, format!("{error:#}"))
        }
    };
    if json {
        let answer = ErrorResponse { error: known };
        eprintln!("{}", serde_json::to_string(&answer).unwrap_or_else(|_| answer.error.to_string()));
    } else {
        eprintln!("gabion: {known}");
        if let Some(hint) = known.hint_text() {
            eprintln!("  hint: {hint}");
        }
    }
    ExitCode::from(status)
}

/// An error of a machine in the words of the API.
fn known_of_machines(error: &vm::Error) -> Error {
    let kind = match error.kind() {
        vm::ErrorKind::Invalid => ErrorKind::Invalid,
        vm::ErrorKind::NotFound => ErrorKind::NotFound,
        vm::ErrorKind::Exists => ErrorKind::Exists,
        vm::ErrorKind::Busy => ErrorKind::Busy,
        vm::ErrorKind::Io | vm::ErrorKind::Qemu => ErrorKind::Io,
    };
    let known = Error::new(kind, error.to_string());
    match error.hint_text() {
        Some(hint) => known.hint(hint),
        None => known,
    }
}
