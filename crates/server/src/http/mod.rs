//! The API: HTTP over a Unix socket, JSON both ways, under `/v1`.
//!
//! Owns routes and the form of requests and answers. Always true: every answer is JSON, failures have the form of
//! [`crate::wire::ErrorAnswer`]. Must not know: how anything is done.

mod answer;
mod daemon;
mod document;
mod drives;
mod events;
mod exports;
mod operations;
mod pools;
mod scrub;
mod snapshots;
mod socket;
mod volumes;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Method, Uri};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{delete, get, patch, post, put};

pub use document::openapi_json;
pub(crate) use socket::ApiSocket;

use crate::daemon::Services;
use crate::error::{Error, ErrorKind};

/// The routes.
pub(crate) fn router(services: Arc<Services>) -> Router {
    Router::new()
        .route("/v1/openapi.json", get(document::get))
        .route("/v1/daemon", get(daemon::get))
        .route("/v1/operations", get(operations::list))
        .route("/v1/operations/{id}", get(operations::get))
        .route("/v1/pools", get(pools::list).post(pools::create))
        .route("/v1/pools/{pool}", get(pools::get).delete(pools::destroy))
        .route("/v1/pools/{pool}/open", post(pools::open))
        .route("/v1/pools/{pool}/close", post(pools::close))
        .route("/v1/pools/{pool}/events", get(events::list))
        .route("/v1/pools/{pool}/repair", patch(pools::limit_repair))
        .route("/v1/pools/{pool}/scrub", post(scrub::start).patch(scrub::change).delete(scrub::cancel))
        .route("/v1/pools/{pool}/drives", post(pools::add_drive))
        .route("/v1/pools/{pool}/drives/{index}/fail", post(pools::fail_drive))
        .route("/v1/pools/{pool}/drives/{index}/replace", post(pools::replace_drive))
        .route("/v1/pools/{pool}/drives/{index}/evacuate", post(pools::evacuate_drive))
        .route("/v1/pools/{pool}/drives/{index}/keep", post(pools::keep_drive))
        .route("/v1/pools/{pool}/drives/{index}/return", post(pools::return_drive))
        .route("/v1/pools/{pool}/volumes", get(volumes::list).post(volumes::create))
        .route(
            "/v1/pools/{pool}/volumes/{volume}",
            get(volumes::get).patch(volumes::resize).delete(volumes::delete),
        )
        .route("/v1/pools/{pool}/volumes/{volume}/service", put(volumes::set_service))
        .route("/v1/pools/{pool}/volumes/{volume}/snapshots", post(snapshots::take))
        .route("/v1/pools/{pool}/volumes/{volume}/clone", post(snapshots::clone))
        .route("/v1/pools/{pool}/volumes/{volume}/roll-back", post(snapshots::roll_back))
        .route("/v1/pools/{pool}/volumes/{volume}/usage", get(snapshots::usage))
        .route("/v1/pools/{pool}/volumes/{volume}/changes", get(snapshots::changes))
        .route("/v1/drives/identify", post(drives::identify))
        .route("/v1/exports", get(exports::list).post(exports::create))
        .route("/v1/exports/{pool}/{volume}", delete(exports::delete))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn(log))
        .with_state(services)
}

async fn no_route(uri: Uri) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is nothing at {}", crate::request::shown(uri.path())))
        .hint("GET /v1/openapi.json describes the API")
}

async fn no_method(method: Method, uri: Uri) -> Error {
    let path = crate::request::shown(uri.path());
    Error::new(ErrorKind::Invalid, format!("{method} does not apply to {path}"))
        .hint("GET /v1/openapi.json describes the API")
}

/// Logs what changes something, and everything when asked for details.
async fn log(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let started = std::time::Instant::now();
    let response = next.run(request).await;
    let (status, millis) = (response.status().as_u16(), started.elapsed().as_millis());
    if method == Method::GET {
        tracing::debug!(%method, path, status, millis, "request");
    } else {
        tracing::info!(%method, path, status, millis, "request");
    }
    response
}
