//! Responses to requests for paths and methods that do not exist.

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::IntoResponse;

use api::types::ErrorResponse;

use crate::error::{Error, ErrorKind};

pub(super) async fn no_route(uri: Uri) -> Error {
    Error::new(ErrorKind::NotFound, format!("no endpoint has the path {}", crate::request::shown(uri.path())))
        .hint("GET /v1/openapi.json describes the API")
}

/// The router adds the header `Allow` with the methods of the path.
pub(super) async fn no_method(method: Method, uri: Uri) -> impl IntoResponse {
    let path = crate::request::shown(uri.path());
    let error = Error::new(ErrorKind::Invalid, format!("{path} does not support {method}"))
        .hint("GET /v1/openapi.json describes the API");
    (StatusCode::METHOD_NOT_ALLOWED, Json(ErrorResponse { error: error.into() }))
}
