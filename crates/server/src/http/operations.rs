//! Handlers of operations.

use std::sync::Arc;
use std::time::Duration;

use api::types::{Operation, OperationQuery};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{PathParameters, QueryParameters};
use crate::error::Result;
use crate::services::Services;

/// Longest wait for a change, in seconds.
const WAIT_MAX: u64 = 60;

pub(super) async fn list(State(services): State<Arc<Services>>) -> Json<Vec<Operation>> {
    Json(services.operations.list())
}

pub(super) async fn get(
    State(services): State<Arc<Services>>,
    PathParameters(id): PathParameters<u64>,
    QueryParameters(query): QueryParameters<OperationQuery>,
) -> Result<Json<Operation>> {
    let wait = Duration::from_secs(query.wait.unwrap_or(0).min(WAIT_MAX));
    Ok(Json(services.operations.wait(id, query.after.unwrap_or(0), wait).await?))
}

pub(super) async fn cancel(
    State(services): State<Arc<Services>>,
    PathParameters(id): PathParameters<u64>,
) -> Result<(StatusCode, Json<Operation>)> {
    Ok((StatusCode::ACCEPTED, Json(services.operations.cancel(id)?)))
}
