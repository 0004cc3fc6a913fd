//! The API: HTTP over a Unix socket with JSON bodies, under `/v1`.
//!
//! Owns the mapping of the endpoints in [`api::paths`] to handlers, and the form of requests and
//! responses. Invariant: every response is JSON, and every error is an
//! [`api::types::ErrorResponse`]. Must not know the implementation of any operation.

mod daemon;
mod drives;
mod events;
mod exports;
mod extract;
mod operations;
mod pools;
mod scrub;
mod snapshots;
mod socket;
mod volumes;

use std::sync::Arc;

use api::paths::{self, Endpoint};
use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::http::{Method, Uri};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodFilter, get, on};

pub(crate) use socket::ApiSocket;

use crate::error::{Error, ErrorKind};
use crate::services::Services;

/// Returns the routes with their handlers.
pub(crate) fn router(services: Arc<Services>) -> Router {
    Routes(Router::new())
        .on(&paths::GET_DAEMON, daemon::get)
        .on(&paths::LIST_OPERATIONS, operations::list)
        .on(&paths::GET_OPERATION, operations::get)
        .on(&paths::LIST_POOLS, pools::list)
        .on(&paths::GET_POOL, pools::get)
        .on(&paths::CREATE_POOL, pools::create)
        .on(&paths::OPEN_POOL, pools::open)
        .on(&paths::CLOSE_POOL, pools::close)
        .on(&paths::DESTROY_POOL, pools::destroy)
        .on(&paths::LIST_EVENTS, events::list)
        .on(&paths::CHANGE_REBUILD, pools::change_rebuild)
        .on(&paths::START_SCRUB, scrub::start)
        .on(&paths::CHANGE_SCRUB, scrub::change)
        .on(&paths::CANCEL_SCRUB, scrub::cancel)
        .on(&paths::ADD_DRIVE, drives::add)
        .on(&paths::FAIL_DRIVE, drives::fail)
        .on(&paths::REPLACE_DRIVE, drives::replace)
        .on(&paths::REMOVE_DRIVE, drives::remove)
        .on(&paths::CANCEL_REMOVE_DRIVE, drives::cancel_remove)
        .on(&paths::RETURN_DRIVE, drives::return_to_pool)
        .on(&paths::IDENTIFY_DRIVES, drives::identify)
        .on(&paths::LIST_VOLUMES, volumes::list)
        .on(&paths::GET_VOLUME, volumes::get)
        .on(&paths::CREATE_VOLUME, volumes::create)
        .on(&paths::RESIZE_VOLUME, volumes::resize)
        .on(&paths::SET_VOLUME_QOS, volumes::set_qos)
        .on(&paths::DELETE_VOLUME, volumes::delete)
        .on(&paths::CREATE_SNAPSHOT, snapshots::create)
        .on(&paths::CLONE_SNAPSHOT, snapshots::clone)
        .on(&paths::ROLLBACK_VOLUME, snapshots::rollback)
        .on(&paths::GET_VOLUME_USAGE, snapshots::usage)
        .on(&paths::GET_VOLUME_DIFF, snapshots::diff)
        .on(&paths::LIST_EXPORTS, exports::list)
        .on(&paths::CREATE_EXPORT, exports::create)
        .on(&paths::DELETE_EXPORT, exports::delete)
        .0
        .route(paths::OPENAPI, get(daemon::openapi))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn(log))
        .with_state(services)
}

/// Routes under construction.
struct Routes(Router<Arc<Services>>);

impl Routes {
    /// Adds the handler of an endpoint.
    fn on<Q, B, R, H, T>(self, endpoint: &Endpoint<Q, B, R>, handler: H) -> Self
    where
        H: Handler<T, Arc<Services>>,
        T: 'static,
    {
        Self(self.0.route(endpoint.path, on(method_filter(endpoint.method), handler)))
    }
}

fn method_filter(method: paths::Method) -> MethodFilter {
    match method {
        paths::Method::Get => MethodFilter::GET,
        paths::Method::Post => MethodFilter::POST,
        paths::Method::Put => MethodFilter::PUT,
        paths::Method::Patch => MethodFilter::PATCH,
        paths::Method::Delete => MethodFilter::DELETE,
    }
}

async fn no_route(uri: Uri) -> Error {
    Error::new(ErrorKind::NotFound, format!("no endpoint has the path {}", crate::request::shown(uri.path())))
        .hint("GET /v1/openapi.json describes the API")
}

async fn no_method(method: Method, uri: Uri) -> Error {
    let path = crate::request::shown(uri.path());
    Error::new(ErrorKind::Invalid, format!("{path} does not support {method}"))
        .hint("GET /v1/openapi.json describes the API")
}

/// Logs requests: GET requests at level DEBUG, all others at INFO.
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
