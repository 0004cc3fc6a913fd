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

use super::audit::AuditNote;
use crate::error::{Error, ErrorKind, Result};

/// Largest body of a request, in bytes.
pub(super) const BODY_MAX: usize = 2 << 20;

/// Largest body of a request without an identity, which only the beginning of a session permits.
const PUBLIC_BODY_MAX: usize = 4 << 10;

/// Bytes and time for reading and discarding a body that is too large. A client that still writes
/// when the connection is closed reports a broken pipe instead of the response.
const DISCARD_MAX: u64 = 1 << 30;
const DISCARD_TIME: Duration = Duration::from_secs(10);

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
        serde_json::from_slice(text)
            .map(Self)
            .map_err(|error| invalid(format!("invalid request body: {error}")))
    }
}

/// Reads the body of a request.
async fn read(request: Request) -> Result<Vec<u8>> {
    let (parts, mut body) = request.into_parts();
    let is_known = parts.extensions.get::<Identity>().is_some();
    let most = if is_known { BODY_MAX } else { PUBLIC_BODY_MAX };
    let declared =
        parts.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: u64| length > most as u64) {
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
