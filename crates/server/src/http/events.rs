//! The event logs of pools.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use super::answer::{Asked, Named};
use crate::daemon::Services;
use crate::error::Result;
use crate::wire::{ErrorAnswer, Event};

/// Which events are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(default)]
    after: u64,
    most: Option<usize>,
}

/// What happened to a pool, in order: the newest events that there are.
#[utoipa::path(
    get, operation_id = "list_events", path = "/v1/pools/{pool}/events", tag = "pools",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("after" = Option<u64>, Query, description = "Only events with higher numbers"),
        ("most" = Option<usize>, Query, description = "How many at most; all that the pool has kept if absent")
    ),
    responses(
        (status = 200, description = "Done", body = Vec<Event>),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn list(
    State(services): State<Arc<Services>>,
    Named(pool): Named<String>,
    Asked(Wanted { after, most }): Asked<Wanted>,
) -> Result<Json<Vec<Event>>> {
    Ok(Json(services.pools.events(&pool, after, most.unwrap_or(usize::MAX)).await?))
}
