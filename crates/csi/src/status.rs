//! Errors of the driver as gRPC statuses, with the codes that the CSI specification prescribes.

use api::ErrorKind;
use tonic::{Code, Status};

/// Returns the status of an error of the daemon, with its hint.
pub(crate) fn of_daemon(error: api::Error) -> Status {
    let code = match error.kind() {
        ErrorKind::Invalid | ErrorKind::TooLarge => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Exists => Code::AlreadyExists,
        ErrorKind::Busy | ErrorKind::Occupied => Code::FailedPrecondition,
        ErrorKind::NoSpace => Code::ResourceExhausted,
        ErrorKind::NotOpen | ErrorKind::ShuttingDown | ErrorKind::Unreachable => Code::Unavailable,
        _ => Code::Internal,
    };
    let message = match error.hint_text() {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    };
    Status::new(code, message)
}

/// Returns the status of a field or parameter with an invalid value.
pub(crate) fn invalid(parameter: &str, problem: impl std::fmt::Display) -> Status {
    Status::invalid_argument(format!("{parameter}: {problem}"))
}

/// Returns a required field of a request.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is empty.
pub(crate) fn required<'a>(field: &str, value: &'a str) -> Result<&'a str, Status> {
    if value.is_empty() { Err(invalid(field, "is required")) } else { Ok(value) }
}
