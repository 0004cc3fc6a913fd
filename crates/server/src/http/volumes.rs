//! Volumes.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;

use super::answer::Body;
use super::pools::{Started, started};
use crate::daemon::Services;
use crate::error::Result;
use crate::wire::{CreateVolume, ErrorAnswer, Operation, OperationKind, ResizeVolume, Volume};

/// The volumes of a pool.
#[utoipa::path(
    get, path = "/v1/pools/{pool}/volumes", tag = "volumes",
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 200, body = Vec<Volume>), (status = 404, body = ErrorAnswer))
)]
pub(super) async fn list(
    State(services): State<Arc<Services>>,
    Path(pool): Path<String>,
) -> Result<Json<Vec<Volume>>> {
    let mut volumes = services.pools.volumes(&pool).await?;
    for volume in &mut volumes {
        volume.exported = services.exports.is_exported(&pool, &volume.name);
    }
    Ok(Json(volumes))
}

/// One volume.
#[utoipa::path(
    get, path = "/v1/pools/{pool}/volumes/{volume}", tag = "volumes",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "Its name")
    ),
    responses((status = 200, body = Volume), (status = 404, body = ErrorAnswer))
)]
pub(super) async fn get(
    State(services): State<Arc<Services>>,
    Path((pool, volume)): Path<(String, String)>,
) -> Result<Json<Volume>> {
    let found = services.pools.volume(&pool, &volume).await?;
    Ok(Json(with_exports(&services, found)))
}

/// Creates a thin volume.
#[utoipa::path(
    post, path = "/v1/pools/{pool}/volumes", tag = "volumes", request_body = CreateVolume,
    params(("pool" = String, Path, description = "The pool's name")),
    responses((status = 201, body = Volume), (status = 400, body = ErrorAnswer), (status = 409, body = ErrorAnswer))
)]
pub(super) async fn create(
    State(services): State<Arc<Services>>,
    Path(pool): Path<String>,
    Body(request): Body<CreateVolume>,
) -> Result<(StatusCode, Json<Volume>)> {
    Ok((StatusCode::CREATED, Json(services.pools.create_volume(&pool, request).await?)))
}

/// Changes a volume's size.
#[utoipa::path(
    patch, path = "/v1/pools/{pool}/volumes/{volume}", tag = "volumes", request_body = ResizeVolume,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "Its name")
    ),
    responses((status = 200, body = Volume), (status = 400, body = ErrorAnswer), (status = 404, body = ErrorAnswer))
)]
pub(super) async fn resize(
    State(services): State<Arc<Services>>,
    Path((pool, volume)): Path<(String, String)>,
    Body(request): Body<ResizeVolume>,
) -> Result<Json<Volume>> {
    let resized = services.pools.resize_volume(&pool, &volume, request).await?;
    Ok(Json(with_exports(&services, resized)))
}

/// Deletes a volume: its data is lost.
#[utoipa::path(
    delete, path = "/v1/pools/{pool}/volumes/{volume}", tag = "volumes",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "Its name")
    ),
    responses((status = 202, body = Operation), (status = 404, body = ErrorAnswer), (status = 409, body = ErrorAnswer))
)]
pub(super) async fn delete(
    State(services): State<Arc<Services>>,
    Path((pool, volume)): Path<(String, String)>,
) -> Result<Started> {
    services.exports.check_volume_unused(&pool, &volume)?;
    services.pools.volume(&pool, &volume).await?;
    let (pools, target) = (services.pools.clone(), format!("{pool}/{volume}"));
    let delete = |progress| async move { pools.delete_volume(&pool, &volume, &progress).await };
    services.operations.start(OperationKind::VolumeDelete, &target, delete).map(started)
}

fn with_exports(services: &Services, volume: Volume) -> Volume {
    let exported = services.exports.is_exported(&volume.pool, &volume.name);
    Volume { exported, ..volume }
}
