//! Operations: what goes on, and waiting for it.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::answer::{Asked, Named};
use crate::daemon::Services;
use crate::error::Result;
use crate::wire::{ErrorAnswer, Operation};

/// Longest wait for news, in seconds.
const WAIT_MAX: u64 = 60;

/// How to wait for news of an operation.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    /// Answer once the operation's revision is higher than this, or it has ended.
    #[serde(default)]
    after: Option<u64>,
    /// Answer after so many seconds in any case; at most 60, 0 if absent.
    #[serde(default)]
    wait: Option<u64>,
}

/// The operations that run, and the last that have ended.
#[utoipa::path(
    get, operation_id = "list_operations", path = "/v1/operations", tag = "operations",
    responses(
        (status = 200, description = "Done", body = Vec<Operation>),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn list(State(services): State<Arc<Services>>) -> Json<Vec<Operation>> {
    Json(services.operations.list())
}

/// An operation, at once or when there is news of it.
#[utoipa::path(
    get, operation_id = "get_operation", path = "/v1/operations/{id}", tag = "operations",
    params(("id" = u64, Path, description = "Its number"), Wait),
    responses(
        (status = 200, description = "Done", body = Operation),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn get(
    State(services): State<Arc<Services>>,
    Named(id): Named<u64>,
    Asked(wait): Asked<Wait>,
) -> Result<Json<Operation>> {
    let patience = Duration::from_secs(wait.wait.unwrap_or(0).min(WAIT_MAX));
    let news = services.operations.wait(id, wait.after.unwrap_or(0), patience).await?;
    Ok(Json(news))
}
