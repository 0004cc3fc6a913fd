//! Snapshots and clones.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;

use super::answer::{Asked, Body, Named};
use super::volumes::with_exports;
use crate::daemon::Services;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::{Changes, CloneSnapshot, ErrorAnswer, RollBack, TakeSnapshot, Usage, Volume};

/// Takes a snapshot: what was acknowledged before is in it, durably, and nothing that was begun after.
#[utoipa::path(
    post, operation_id = "take_snapshot", path = "/v1/pools/{pool}/volumes/{volume}/snapshots", tag = "snapshots", request_body = TakeSnapshot,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "The volume's name")
    ),
    responses(
        (status = 201, description = "Made", body = Volume),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn take(
    State(services): State<Arc<Services>>,
    Named((pool, volume)): Named<(String, String)>,
    Body(request): Body<TakeSnapshot>,
) -> Result<(StatusCode, Json<Volume>)> {
    let name = format!("{volume}@{}", request.name);
    Ok((StatusCode::CREATED, Json(services.pools.take_snapshot(&pool, &name).await?)))
}

/// Makes a volume of a snapshot, which shares its data.
#[utoipa::path(
    post, operation_id = "clone_snapshot", path = "/v1/pools/{pool}/volumes/{volume}/clone", tag = "snapshots", request_body = CloneSnapshot,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "The snapshot's name, `volume@snapshot`")
    ),
    responses(
        (status = 201, description = "Made", body = Volume),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn clone(
    State(services): State<Arc<Services>>,
    Named((pool, snapshot)): Named<(String, String)>,
    Body(request): Body<CloneSnapshot>,
) -> Result<(StatusCode, Json<Volume>)> {
    let made = services.pools.clone_snapshot(&pool, &snapshot, &request.name).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Makes a volume what its snapshot is: everything written since is lost, unless a later snapshot has it.
#[utoipa::path(
    post, operation_id = "roll_back_volume", path = "/v1/pools/{pool}/volumes/{volume}/roll-back", tag = "snapshots", request_body = RollBack,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "The snapshot's name, `volume@snapshot`")
    ),
    responses(
        (status = 200, description = "Done", body = Volume),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn roll_back(
    State(services): State<Arc<Services>>,
    Named((pool, snapshot)): Named<(String, String)>,
    Body(request): Body<RollBack>,
) -> Result<Json<Volume>> {
    let volume = snapshot.split_once('@').map_or(snapshot.as_str(), |(volume, _)| volume).to_owned();
    if services.exports.is_exported(&pool, &volume) && !request.force {
        let message =
            format!("volume '{pool}/{volume}' is exported: whoever uses it would see other data all at once");
        return Err(Error::new(ErrorKind::Busy, message)
            .hint("stop what uses it and end the export, or force it if you know that nobody does"));
    }
    let back = services.pools.roll_back(&pool, &snapshot).await?;
    services.exports.resized(&pool, &volume).await;
    Ok(Json(with_exports(&services, back)))
}

/// Counts what a volume or snapshot holds: reads its map, which takes a while for a large one.
#[utoipa::path(
    get, operation_id = "get_volume_usage", path = "/v1/pools/{pool}/volumes/{volume}/usage", tag = "snapshots",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "Its name")
    ),
    responses(
        (status = 200, description = "Done", body = Usage),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn usage(
    State(services): State<Arc<Services>>,
    Named((pool, volume)): Named<(String, String)>,
) -> Result<Json<Usage>> {
    Ok(Json(services.pools.usage(&pool, &volume).await?))
}

/// What changes are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    since: String,
    #[serde(default)]
    offset: u64,
}

/// Where a volume or snapshot differs from another one of the same origin, in whole blocks and in parts.
#[utoipa::path(
    get, operation_id = "get_volume_changes", path = "/v1/pools/{pool}/volumes/{volume}/changes", tag = "snapshots",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "Its name"),
        ("since" = String, Query, description = "The volume or snapshot that it is compared with"),
        ("offset" = Option<u64>, Query, description = "Where to begin, in bytes: `next` of the part before")
    ),
    responses(
        (status = 200, description = "Done", body = Changes),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn changes(
    State(services): State<Arc<Services>>,
    Named((pool, volume)): Named<(String, String)>,
    Asked(Wanted { since, offset }): Asked<Wanted>,
) -> Result<Json<Changes>> {
    Ok(Json(services.pools.changes(&pool, &volume, &since, offset).await?))
}
