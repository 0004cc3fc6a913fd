//! Errors of the store as S3 errors.

use hyper::StatusCode;
use hyper::header::{HeaderMap, HeaderValue};
use object::{ObjectError, ObjectErrorKind};
use s3s::{S3Error, S3ErrorCode, s3_error};

/// An error of the store.
pub(crate) fn convert(error: ObjectError) -> S3Error {
    use ObjectErrorKind as Kind;
    let code = match error.kind() {
        Kind::NoSuchBucket => S3ErrorCode::NoSuchBucket,
        Kind::BucketExists => S3ErrorCode::BucketAlreadyOwnedByYou,
        Kind::BucketNotEmpty => S3ErrorCode::BucketNotEmpty,
        Kind::NoSuchKey => S3ErrorCode::NoSuchKey,
        Kind::NoSuchVersion => S3ErrorCode::NoSuchVersion,
        Kind::NoSuchUpload => S3ErrorCode::NoSuchUpload,
        Kind::InvalidPart => S3ErrorCode::InvalidPart,
        Kind::InvalidPartOrder => S3ErrorCode::InvalidPartOrder,
        Kind::PartTooSmall => S3ErrorCode::EntityTooSmall,
        Kind::DeleteMarker => S3ErrorCode::MethodNotAllowed,
        Kind::Locked => S3ErrorCode::AccessDenied,
        Kind::QuotaExceeded => S3ErrorCode::Custom("QuotaExceeded".into()),
        Kind::PreconditionFailed => S3ErrorCode::PreconditionFailed,
        Kind::Invalid => S3ErrorCode::InvalidArgument,
        // Clients repeat requests after 503 for a while; a full pool does not get space by that.
        Kind::NoSpace => S3ErrorCode::Custom("StorageFull".into()),
        Kind::Closed => S3ErrorCode::ServiceUnavailable,
        Kind::Io => S3ErrorCode::InternalError,
    };
    match error.kind() {
        Kind::Io => tracing::error!(%error, "a request failed"),
        Kind::NoSpace => tracing::warn!(%error, "a request was refused"),
        _ => {}
    }
    let mut converted = S3Error::with_message(code, error.to_string());
    match error.kind() {
        Kind::QuotaExceeded => converted.set_status_code(StatusCode::FORBIDDEN),
        Kind::NoSpace => converted.set_status_code(StatusCode::INSUFFICIENT_STORAGE),
        Kind::DeleteMarker => {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-delete-marker", HeaderValue::from_static("true"));
            converted.set_headers(headers);
        }
        _ => {}
    }
    converted
}

/// An error whose code the protocol library does not know.
pub(crate) fn custom(code: &'static str, status: StatusCode, message: &str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message.to_owned());
    error.set_status_code(status);
    error
}

/// An error of the service itself.
pub(crate) fn internal(error: impl std::error::Error + Send + Sync + 'static) -> S3Error {
    tracing::error!(%error, "a request failed");
    S3Error::internal_error(error)
}

/// An invalid argument.
pub(crate) fn invalid(message: String) -> S3Error {
    s3_error!(InvalidArgument, "{message}")
}

/// Returns the error for an unexpected result of the store.
pub(crate) fn unexpected_outcome() -> S3Error {
    internal(std::io::Error::other("the store returned the result of another change"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pool_is_not_an_overload_that_clients_wait_for() {
        let full = convert(ObjectError::new(ObjectErrorKind::NoSpace, "the pool has no space"));
        assert_eq!(
            (full.code().as_str(), full.status_code().map(|s| s.as_u16())),
            ("StorageFull", Some(507))
        );
        let closed = convert(ObjectError::new(ObjectErrorKind::Closed, "the store is closed"));
        assert_eq!(closed.status_code().map(|status| status.as_u16()), Some(503));
    }
}
