//! Handlers of snapshots and clones.

use std::sync::Arc;

use api::types::{
    CloneSnapshot, CreateSnapshot, CreateSnapshots, DiffQuery, RollbackVolume, Volume, VolumeDiff,
    VolumeUsage,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{JsonBody, PathParameters, QueryParameters};
use super::volumes::with_exports;
use crate::error::{Error, ErrorKind, Result};
use crate::services::Services;

pub(super) async fn create(
    State(services): State<Arc<Services>>,
    PathParameters((pool, volume)): PathParameters<(String, String)>,
    JsonBody(request): JsonBody<CreateSnapshot>,
) -> Result<(StatusCode, Json<Volume>)> {
    let name = format!("{volume}@{}", request.name);
    Ok((StatusCode::CREATED, Json(services.volumes.create_snapshot(&pool, &name).await?)))
}

pub(super) async fn create_together(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
    JsonBody(request): JsonBody<CreateSnapshots>,
) -> Result<(StatusCode, Json<Vec<Volume>>)> {
    let created = services.volumes.create_snapshots(&pool, &request.snapshots).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

pub(super) async fn clone(
    State(services): State<Arc<Services>>,
    PathParameters((pool, snapshot)): PathParameters<(String, String)>,
    JsonBody(request): JsonBody<CloneSnapshot>,
) -> Result<(StatusCode, Json<Volume>)> {
    let cloned = services.volumes.clone_snapshot(&pool, &snapshot, &request.name).await?;
    Ok((StatusCode::CREATED, Json(cloned)))
}

pub(super) async fn rollback(
    State(services): State<Arc<Services>>,
    PathParameters((pool, snapshot)): PathParameters<(String, String)>,
    JsonBody(request): JsonBody<RollbackVolume>,
) -> Result<Json<Volume>> {
    let volume = snapshot.split_once('@').map_or(snapshot.as_str(), |(volume, _)| volume).to_owned();
    if services.exports.is_exported(&pool, &volume) && !request.force {
        let message =
            format!("volume '{pool}/{volume}' is exported: a rollback changes its data under its clients");
        return Err(Error::new(ErrorKind::Busy, message)
            .hint("stop its clients and delete the export; or use --force if no client uses the volume"));
    }
    let rolled_back = services.volumes.roll_back(&pool, &snapshot).await?;
    services.exports.resized(&pool, &volume).await;
    Ok(Json(with_exports(&services, rolled_back)))
}

pub(super) async fn usage(
    State(services): State<Arc<Services>>,
    PathParameters((pool, volume)): PathParameters<(String, String)>,
) -> Result<Json<VolumeUsage>> {
    Ok(Json(services.volumes.usage(&pool, &volume).await?))
}

pub(super) async fn diff(
    State(services): State<Arc<Services>>,
    PathParameters((pool, volume)): PathParameters<(String, String)>,
    QueryParameters(DiffQuery { from, offset }): QueryParameters<DiffQuery>,
) -> Result<Json<VolumeDiff>> {
    Ok(Json(services.volumes.diff(&pool, from.as_deref(), &volume, offset).await?))
}
