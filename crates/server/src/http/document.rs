//! The OpenAPI document, made of the routes and the wire types.

use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use utoipa::OpenApi;

use super::{daemon, drives, events, exports, operations, pools, scrub, snapshots, volumes};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Gabion",
        version = "v1",
        description = "The API of the Gabion daemon, served over a Unix socket. Sizes are bytes, times are seconds \
                       since 1970, durations are seconds; a field that is absent is not known. Work that takes long \
                       answers 202 with an operation, which is watched at /v1/operations/{id}.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        daemon::get,
        operations::list,
        operations::get,
        pools::list,
        pools::get,
        pools::create,
        pools::open,
        pools::close,
        pools::destroy,
        pools::add_drive,
        pools::fail_drive,
        pools::replace_drive,
        pools::evacuate_drive,
        pools::keep_drive,
        pools::return_drive,
        pools::limit_repair,
        scrub::start,
        scrub::change,
        scrub::cancel,
        events::list,
        volumes::list,
        volumes::get,
        volumes::create,
        volumes::resize,
        volumes::set_service,
        volumes::delete,
        snapshots::take,
        snapshots::clone,
        snapshots::roll_back,
        snapshots::usage,
        snapshots::changes,
        drives::identify,
        exports::list,
        exports::create,
        exports::delete,
    )
)]
struct Document;

/// The OpenAPI document of the API, as JSON.
///
/// # Panics
/// If it cannot be written as JSON, which a test rules out.
pub fn openapi_json() -> String {
    match Document::openapi().to_pretty_json() {
        Ok(json) => json + "\n",
        Err(error) => panic!("the OpenAPI document is no JSON: {error}"),
    }
}

pub(super) async fn get() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], openapi_json())
}
