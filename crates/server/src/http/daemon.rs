//! Handlers of the daemon's status and of the OpenAPI document.

use std::sync::Arc;

use api::types::DaemonStatus;
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::services::Services;

pub(super) async fn get(State(services): State<Arc<Services>>) -> Json<DaemonStatus> {
    Json(services.describe())
}

pub(super) async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], api::openapi::json())
}
