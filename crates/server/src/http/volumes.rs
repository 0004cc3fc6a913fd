//! Volumes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::answer::{Body, Named};
use super::pools::{Started, started};
use crate::daemon::Services;
use crate::error::Result;
use crate::wire::{CreateVolume, ErrorAnswer, Operation, OperationKind, ResizeVolume, Service, Volume};

/// The volumes of a pool.
#[utoipa::path(
    get, operation_id = "list_volumes", path = "/v1/pools/{pool}/volumes", tag = "volumes",
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 200, description = "Done", body = Vec<Volume>),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn list(
    State(services): State<Arc<Services>>,
    Named(pool): Named<String>,
) -> Result<Json<Vec<Volume>>> {
    let mut volumes = services.pools.volumes(&pool).await?;
    for volume in &mut volumes {
        volume.exported = services.exports.is_exported(&pool, &volume.name);
    }
    Ok(Json(volumes))
}

/// One volume.
#[utoipa::path(
    get, operation_id = "get_volume", path = "/v1/pools/{pool}/volumes/{volume}", tag = "volumes",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "Its name")
    ),
    responses(
        (status = 200, description = "Done", body = Volume),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn get(
    State(services): State<Arc<Services>>,
    Named((pool, volume)): Named<(String, String)>,
) -> Result<Json<Volume>> {
    let found = services.pools.volume(&pool, &volume).await?;
    Ok(Json(with_exports(&services, found)))
}

/// Creates a thin volume.
#[utoipa::path(
    post, operation_id = "create_volume", path = "/v1/pools/{pool}/volumes", tag = "volumes", request_body = CreateVolume,
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 201, description = "Made", body = Volume),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn create(
    State(services): State<Arc<Services>>,
    Named(pool): Named<String>,
    Body(request): Body<CreateVolume>,
) -> Result<(StatusCode, Json<Volume>)> {
    Ok((StatusCode::CREATED, Json(services.pools.create_volume(&pool, request).await?)))
}

/// Changes a volume's size.
#[utoipa::path(
    patch, operation_id = "resize_volume", path = "/v1/pools/{pool}/volumes/{volume}", tag = "volumes", request_body = ResizeVolume,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "Its name")
    ),
    responses(
        (status = 200, description = "Done", body = Volume),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn resize(
    State(services): State<Arc<Services>>,
    Named((pool, volume)): Named<(String, String)>,
    Body(request): Body<ResizeVolume>,
) -> Result<Json<Volume>> {
    let resized = services.pools.resize_volume(&pool, &volume, request).await?;
    services.exports.resized(&pool, &volume).await;
    Ok(Json(with_exports(&services, resized)))
}

/// Changes what a volume may take, and what it gets beside others: at once, on all of its exports together.
#[utoipa::path(
    put, operation_id = "set_volume_service", path = "/v1/pools/{pool}/volumes/{volume}/service", tag = "volumes", request_body = Service,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "Its name")
    ),
    responses(
        (status = 200, description = "Done", body = Volume),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn set_service(
    State(services): State<Arc<Services>>,
    Named((pool, volume)): Named<(String, String)>,
    Body(request): Body<Service>,
) -> Result<Json<Volume>> {
    let set = services.pools.set_service(&pool, &volume, request).await?;
    Ok(Json(with_exports(&services, set)))
}

/// Deletes a volume: its data is lost.
#[utoipa::path(
    delete, operation_id = "delete_volume", path = "/v1/pools/{pool}/volumes/{volume}", tag = "volumes",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "Its name")
    ),
    responses(
        (status = 202, description = "Begun: watch the operation", body = Operation),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn delete(
    State(services): State<Arc<Services>>,
    Named((pool, volume)): Named<(String, String)>,
) -> Result<Started> {
    services.exports.check_volume_unused(&pool, &volume)?;
    services.pools.volume(&pool, &volume).await?;
    let (pools, target) = (services.pools.clone(), format!("{pool}/{volume}"));
    let delete = |progress| async move { pools.delete_volume(&pool, &volume, &progress).await };
    services.operations.start(OperationKind::VolumeDelete, &target, delete).map(started)
}

pub(super) fn with_exports(services: &Services, volume: Volume) -> Volume {
    let exported = services.exports.is_exported(&volume.pool, &volume.name);
    Volume { exported, ..volume }
}
