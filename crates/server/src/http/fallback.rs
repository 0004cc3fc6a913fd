//! Responses to requests for paths and methods that do not exist.

use axum::http::{Method, Uri};

use crate::error::{Error, ErrorKind};

pub(super) async fn no_route(uri: Uri) -> Error {
    Error::new(ErrorKind::NotFound, format!("no endpoint has the path {}", crate::request::shown(uri.path())))
        .hint("GET /v1/openapi.json describes the API")
}

pub(super) async fn no_method(method: Method, uri: Uri) -> Error {
    let path = crate::request::shown(uri.path());
    Error::new(ErrorKind::Invalid, format!("{path} does not support {method}"))
        .hint("GET /v1/openapi.json describes the API")
}
