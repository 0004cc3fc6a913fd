//! Handlers of scrubbing.

use std::sync::Arc;

use api::types::{ChangeScrub, Pool};
use axum::Json;
use axum::extract::State;

use super::extract::{JsonBody, PathParameters};
use crate::error::Result;
use crate::services::Services;

pub(super) async fn start(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
) -> Result<Json<Pool>> {
    services.pools.start_scrub(&pool).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

pub(super) async fn change(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
    JsonBody(request): JsonBody<ChangeScrub>,
) -> Result<Json<Pool>> {
    services.pools.change_scrub(&pool, request).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

pub(super) async fn cancel(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
) -> Result<Json<Pool>> {
    services.pools.cancel_scrub(&pool).await?;
    Ok(Json(services.pools.status(&pool).await?))
}
