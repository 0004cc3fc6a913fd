//! Handlers of volumes.

use std::sync::Arc;

use api::types::{CreateVolume, OperationKind, QosLimits, ResizeVolume, Volume};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{JsonBody, PathParameters};
use super::pools::{Started, started};
use crate::error::Result;
use crate::services::Services;

pub(super) async fn list(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
) -> Result<Json<Vec<Volume>>> {
    let volumes = services.volumes.list(&pool).await?;
    // One look for all: a pool can have thousands of volumes.
    let exported = services.exports.exported_volumes(&pool);
    let shown = |volume: Volume| Volume { exported: exported.contains(&volume.name), ..volume };
    Ok(Json(volumes.into_iter().map(shown).collect()))
}

pub(super) async fn get(
    State(services): State<Arc<Services>>,
    PathParameters((pool, volume)): PathParameters<(String, String)>,
) -> Result<Json<Volume>> {
    let found = services.volumes.get(&pool, &volume).await?;
    Ok(Json(with_exports(&services, found)))
}

pub(super) async fn create(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
    JsonBody(request): JsonBody<CreateVolume>,
) -> Result<(StatusCode, Json<Volume>)> {
    Ok((StatusCode::CREATED, Json(services.volumes.create(&pool, request).await?)))
}

pub(super) async fn resize(
    State(services): State<Arc<Services>>,
    PathParameters((pool, volume)): PathParameters<(String, String)>,
    JsonBody(request): JsonBody<ResizeVolume>,
) -> Result<Json<Volume>> {
    let resized = services.volumes.resize(&pool, &volume, request).await?;
    services.exports.resized(&pool, &volume).await;
    Ok(Json(with_exports(&services, resized)))
}

pub(super) async fn set_qos(
    State(services): State<Arc<Services>>,
    PathParameters((pool, volume)): PathParameters<(String, String)>,
    JsonBody(request): JsonBody<QosLimits>,
) -> Result<Json<Volume>> {
    let changed = services.volumes.set_qos(&pool, &volume, request).await?;
    Ok(Json(with_exports(&services, changed)))
}

pub(super) async fn delete(
    State(services): State<Arc<Services>>,
    PathParameters((pool, volume)): PathParameters<(String, String)>,
) -> Result<Started> {
    services.exports.check_volume_unused(&pool, &volume)?;
    services.volumes.get(&pool, &volume).await?;
    let (volumes, target) = (services.volumes.clone(), format!("{pool}/{volume}"));
    let delete = |progress| async move { volumes.delete(&pool, &volume, &progress).await };
    services.operations.start(OperationKind::VolumeDelete, &target, delete).map(started)
}

/// Returns the volume with its field `exported` filled in.
pub(super) fn with_exports(services: &Services, volume: Volume) -> Volume {
    let exported = services.exports.is_exported(&volume.pool, &volume.name);
    Volume { exported, ..volume }
}
