//! Exit status of commands, and error output.

use std::fmt;
use std::process::ExitCode;

use api::types::ErrorResponse;
use api::{Error, ErrorKind};

/// The result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitReason {
    /// Success; the examined object is healthy.
    Success,
    /// Success; the examined object is degraded or damaged.
    Unhealthy,
}

impl From<ExitReason> for ExitCode {
    fn from(outcome: ExitReason) -> Self {
        match outcome {
            ExitReason::Success => Self::SUCCESS,
            ExitReason::Unhealthy => Self::from(3),
        }
    }
}

/// An invalid command line that is detected after parsing.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Prints the error of a command to standard error and returns the exit status.
pub(crate) fn report(error: &anyhow::Error, json: bool) -> ExitCode {
    let status = if error.is::<Usage>() { 2 } else { 1 };
    let vm_error = error.downcast_ref::<vm::Error>().map(to_api_error);
    let cluster_error = error.downcast_ref::<cluster::Error>().map(from_cluster);
    let server_error = error.downcast_ref::<server::Error>().cloned().map(Error::from);
    let api_error = error.downcast_ref::<Error>().cloned();
    let error_value = match api_error.or(vm_error).or(cluster_error).or(server_error) {
        Some(error_value) => error_value,
        None => {
            let kind = if status == 2 { ErrorKind::Invalid } else { ErrorKind::Internal };
            Error::new(kind, format!("{error:#}"))
        }
    };
    if json {
        let response = ErrorResponse { error: error_value };
        eprintln!("{}", serde_json::to_string(&response).unwrap_or_else(|_| response.error.to_string()));
    } else {
        eprintln!("gabion: {error_value}");
        if let Some(hint) = error_value.hint_text() {
            eprintln!("  hint: {hint}");
        }
    }
    ExitCode::from(status)
}

/// Converts an error of a machine operation to an API error.
fn to_api_error(error: &vm::Error) -> Error {
    let kind = match error.kind() {
        vm::ErrorKind::Invalid => ErrorKind::Invalid,
        vm::ErrorKind::NotFound => ErrorKind::NotFound,
        vm::ErrorKind::Exists => ErrorKind::Exists,
        vm::ErrorKind::Busy => ErrorKind::Busy,
        vm::ErrorKind::Io | vm::ErrorKind::Qemu => ErrorKind::Io,
    };
    let error_value = Error::new(kind, error.to_string());
    match error.hint_text() {
        Some(hint) => error_value.hint(hint),
        None => error_value,
    }
}

/// Converts an error of a cluster operation to an API error.
fn from_cluster(error: &cluster::Error) -> Error {
    let kind = match error.kind() {
        cluster::ErrorKind::Invalid => ErrorKind::Invalid,
        cluster::ErrorKind::NotFound => ErrorKind::NotFound,
        cluster::ErrorKind::Exists => ErrorKind::Exists,
        cluster::ErrorKind::Busy | cluster::ErrorKind::Unsafe => ErrorKind::Busy,
        cluster::ErrorKind::NoSpace => ErrorKind::NoSpace,
        cluster::ErrorKind::ReadOnly => ErrorKind::Invalid,
        cluster::ErrorKind::Unreachable => ErrorKind::Unreachable,
        cluster::ErrorKind::Io => ErrorKind::Io,
    };
    let error_value = Error::new(kind, error.to_string());
    match error.hint_text() {
        Some(hint) => error_value.hint(hint),
        None => error_value,
    }
}
