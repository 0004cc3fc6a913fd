//! `/v1/pools/{pool}/scrub`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::answer::{Body, Named};
use crate::daemon::Services;
use crate::error::Result;
use crate::wire::{ChangeScrub, ErrorAnswer, Pool};

/// Begins to read everything that a pool holds, in the background; nothing happens if that is under way.
#[utoipa::path(
    post, operation_id = "start_scrub", path = "/v1/pools/{pool}/scrub", tag = "pools",
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 200, description = "It is under way", body = Pool),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn start(
    State(services): State<Arc<Services>>,
    Named(pool): Named<String>,
) -> Result<Json<Pool>> {
    services.pools.start_scrub(&pool).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

/// Pauses or resumes scrubbing, limits it, and sets how often a pool is scrubbed.
#[utoipa::path(
    patch, operation_id = "change_scrub", path = "/v1/pools/{pool}/scrub", tag = "pools", request_body = ChangeScrub,
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 200, description = "Done", body = Pool),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn change(
    State(services): State<Arc<Services>>,
    Named(pool): Named<String>,
    Body(request): Body<ChangeScrub>,
) -> Result<Json<Pool>> {
    services.pools.change_scrub(&pool, request).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

/// Calls off the scrub that is under way, if there is one.
#[utoipa::path(
    delete, operation_id = "cancel_scrub", path = "/v1/pools/{pool}/scrub", tag = "pools",
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 200, description = "None is under way", body = Pool),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn cancel(
    State(services): State<Arc<Services>>,
    Named(pool): Named<String>,
) -> Result<Json<Pool>> {
    services.pools.cancel_scrub(&pool).await?;
    Ok(Json(services.pools.status(&pool).await?))
}
