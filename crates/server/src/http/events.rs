//! Handler of the event logs of pools.

use std::sync::Arc;

use api::types::{Event, EventQuery};
use axum::Json;
use axum::extract::State;

use super::extract::{PathParameters, QueryParameters};
use crate::error::Result;
use crate::services::Services;

pub(super) async fn list(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
    QueryParameters(EventQuery { after, last }): QueryParameters<EventQuery>,
) -> Result<Json<Vec<Event>>> {
    Ok(Json(services.pools.events(&pool, after, last.unwrap_or(usize::MAX)).await?))
}
