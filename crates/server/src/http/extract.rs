//! Extraction of the parts of a request, and the response for an error.

use std::time::Duration;

use api::types::{ErrorResponse, Identity};
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::audit::AuditNote;
use crate::error::{Error, ErrorKind, Result};

/// Largest body of a request, in bytes.
pub(super) const BODY_MAX: usize = 2 << 20;

/// Largest body of a request without an identity, which only the beginning of a session permits.
const PUBLIC_BODY_MAX: usize = 4 << 10;

/// Largest body that is read before the handler runs.
const SMALL_BODY_MAX: u64 = 64 << 10;

/// Bytes and time for reading and discarding a body that is too large. A client that still writes
/// when the connection is closed reports a broken pipe instead of the response.
const DISCARD_MAX: u64 = 1 << 30;
const DISCARD_TIME: Duration = Duration::from_secs(10);

/// Bound of the integers that a floating-point number represents exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// A JSON body, regardless of its content type. An empty body stands for an empty object.
pub(super) struct JsonBody<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        let note = request.extensions().get::<AuditNote>().cloned();
        let bytes = read(request).await?;
        if let Some(note) = note {
            note.set(&bytes);
        }
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // The parser would also accept an array of the fields' values.
        if !text.trim_ascii_start().starts_with(b"{") {
            return Err(invalid("invalid request body: it is not a JSON object".into()));
        }
        match serde_json::from_slice(text) {
            Ok(value) => Ok(Self(value)),
            Err(error) => {
                with_integers(text).map(Self).ok_or_else(|| invalid(format!("invalid request body: {error}")))
            }
        }
    }
}

/// Parses a JSON text with an integer that has a fraction of zero, such as `20.0`, which JSON
/// Schema does not distinguish from `20`. Returns `None` if the text has none, or is invalid for
/// another reason.
fn with_integers<T: DeserializeOwned>(text: &[u8]) -> Option<T> {
    let mut value = serde_json::from_slice(text).ok()?;
    if drop_zero_fractions(&mut value) { serde_json::from_value(value).ok() } else { None }
}

/// Applies [`drop_zero_fractions`] to all values.
fn drop_all_zero_fractions<'a>(values: impl Iterator<Item = &'a mut Value>) -> bool {
    values.map(drop_zero_fractions).filter(|dropped| *dropped).count() > 0
}

/// Replaces numbers with a fraction of zero by integers. Returns true if there was one.
fn drop_zero_fractions(value: &mut Value) -> bool {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            #[allow(clippy::cast_possible_truncation, reason = "the number is an integer below 2^53")]
            Some(float) if float.fract() == 0.0 && float.abs() < EXACT_MAX => {
                *number = (float as i64).into();
                true
            }
            _ => false,
        },
        Value::Array(values) => drop_all_zero_fractions(values.iter_mut()),
        Value::Object(fields) => drop_all_zero_fractions(fields.values_mut()),
        _ => false,
    }
}

/// Reads a small body before the handler runs, also for a handler that does not need it. The server
/// closes the connection after the response to a request that is not read to its end, and a client
/// that has sent its next request by then gets no response to it.
pub(super) async fn read_small_body(request: Request) -> Result<Request> {
    let (parts, body) = request.into_parts();
    if !declared_length(&parts).is_some_and(|length| (1..=SMALL_BODY_MAX).contains(&length)) {
        return Ok(Request::from_parts(parts, body));
    }
    let bytes = axum::body::to_bytes(body, BODY_MAX).await;
    let bytes = bytes.map_err(|error| invalid(format!("the request body ended early: {error}")))?;
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// Returns the length of the body according to the header.
fn declared_length(parts: &Parts) -> Option<u64> {
    parts.headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads the body of a request.
async fn read(request: Request) -> Result<Vec<u8>> {
    let (parts, mut body) = request.into_parts();
    let is_known = parts.extensions.get::<Identity>().is_some();
    let most = if is_known { BODY_MAX } else { PUBLIC_BODY_MAX };
    if declared_length(&parts).is_some_and(|length| length > most as u64) {
        // A client that expects 100 Continue has not sent the body yet.
        if is_known && !parts.headers.contains_key(header::EXPECT) {
            discard(body, 0).await;
        }
        return Err(too_large(most));
    }
    let mut bytes = Vec::new();
    while let Some(data) = next_data(&mut body).await? {
        bytes.extend_from_slice(&data);
        if bytes.len() > most {
            if is_known {
                discard(body, bytes.len() as u64).await;
            }
            return Err(too_large(most));
        }
    }
    Ok(bytes)
}

/// Returns the next part of a body; `None` at its end.
async fn next_data(body: &mut Body) -> Result<Option<Bytes>> {
    match body.frame().await {
        None => Ok(None),
        Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        Some(Err(error)) => Err(invalid(format!("the request body ended early: {error}"))),
    }
}

/// Reads the rest of a body, of which `read` bytes are read, within the limits.
async fn discard(mut body: Body, mut read: u64) {
    let rest = async {
        while read < DISCARD_MAX
            && let Ok(Some(data)) = next_data(&mut body).await
        {
            read += data.len() as u64;
        }
    };
    // The response is sent in any case. It may not reach a client that is cut off here.
    let _ = tokio::time::timeout(DISCARD_TIME, rest).await;
}

fn too_large(most: usize) -> Error {
    let message = format!("the request body is larger than {}", api::Size(most as u64));
    Error::new(ErrorKind::TooLarge, message).hint("GET /v1/openapi.json describes the API")
}

/// Parameters in the path.
pub(super) struct PathParameters<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParameters<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(values)| Self(values)).map_err(|error| invalid(error.body_text()))
    }
}

/// Parameters in the query.
pub(super) struct QueryParameters<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for QueryParameters<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let query = Query::from_request_parts(parts, state).await;
        query.map(|Query(values)| Self(values)).map_err(|error| invalid(error.body_text()))
    }
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, message).hint("GET /v1/openapi.json describes the API")
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = match self.kind() {
            ErrorKind::Invalid => StatusCode::BAD_REQUEST,
            ErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::Denied | ErrorKind::Forbidden => StatusCode::FORBIDDEN,
            ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
            ErrorKind::TooManyAttempts => StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::Exists
            | ErrorKind::Busy
            | ErrorKind::Occupied
            | ErrorKind::NotOpen
            | ErrorKind::NotAPool
            | ErrorKind::Incomplete
            | ErrorKind::Stale
            | ErrorKind::Version
            | ErrorKind::Cancelled => StatusCode::CONFLICT,
            ErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            ErrorKind::PoolFailed | ErrorKind::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Unreachable => StatusCode::BAD_GATEWAY,
            ErrorKind::Io | ErrorKind::Corrupt | ErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(ErrorResponse { error: self.into() })).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_may_have_a_fraction_of_zero() {
        assert_eq!(with_integers::<Vec<u64>>(b"[20.0, 7, 1e3, -0.0]"), Some(vec![20, 7, 1000, 0]));
        assert_eq!(with_integers::<Vec<i64>>(b"[-2.0]"), Some(vec![-2]));
        for refused in ["[20.5]", "[-1.0]", "[1e300]", "[9007199254740992.0]", "[\"20.0\"]", "[20.0"] {
            assert_eq!(with_integers::<Vec<u64>>(refused.as_bytes()), None, "{refused}");
        }
    }
}
