//! Handlers of drives.

use std::sync::Arc;

use api::types::{AddDrive, IdentifiedDrive, IdentifyDrives, OperationKind, Pool, ReturnDrive};
use axum::Json;
use axum::extract::State;

use super::extract::{JsonBody, PathParameters};
use super::pools::{Started, started};
use crate::error::Result;
use crate::services::Services;
use crate::{identify, request};

pub(super) async fn identify(
    State(services): State<Arc<Services>>,
    JsonBody(request): JsonBody<IdentifyDrives>,
) -> Result<Json<Vec<IdentifiedDrive>>> {
    let paths = request.drives.iter().map(|path| request::path(path)).collect::<Result<Vec<_>>>()?;
    Ok(Json(identify::all(&services.reactors.next(), paths, services.pools.drive_owners().await?).await?))
}

pub(super) async fn add(
    State(services): State<Arc<Services>>,
    PathParameters(name): PathParameters<String>,
    JsonBody(request): JsonBody<AddDrive>,
) -> Result<Started> {
    services.pools.get(&name)?;
    let (pools, pool) = (services.pools.clone(), name.clone());
    let add = |progress| async move { pools.add_drive(&pool, &request, &progress).await };
    services.operations.start(OperationKind::DriveAdd, &name, add).map(started)
}

pub(super) async fn fail(
    State(services): State<Arc<Services>>,
    PathParameters((pool, index)): PathParameters<(String, u16)>,
) -> Result<Json<Pool>> {
    services.pools.fail_drive(&pool, index).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

pub(super) async fn replace(
    State(services): State<Arc<Services>>,
    PathParameters((name, index)): PathParameters<(String, u16)>,
    JsonBody(request): JsonBody<AddDrive>,
) -> Result<Started> {
    services.pools.get(&name)?;
    let (pools, pool) = (services.pools.clone(), name.clone());
    let replace = move |progress| async move { pools.replace_drive(&pool, index, &request, &progress).await };
    services.operations.start(OperationKind::DriveReplace, &name, replace).map(started)
}

pub(super) async fn remove(
    State(services): State<Arc<Services>>,
    PathParameters((pool, index)): PathParameters<(String, u16)>,
) -> Result<Json<Pool>> {
    services.pools.remove_drive(&pool, index).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

pub(super) async fn cancel_remove(
    State(services): State<Arc<Services>>,
    PathParameters((pool, index)): PathParameters<(String, u16)>,
) -> Result<Json<Pool>> {
    services.pools.cancel_remove_drive(&pool, index).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

pub(super) async fn return_to_pool(
    State(services): State<Arc<Services>>,
    PathParameters((pool, index)): PathParameters<(String, u16)>,
    JsonBody(request): JsonBody<ReturnDrive>,
) -> Result<Json<Pool>> {
    services.pools.return_drive(&pool, index, &request).await?;
    Ok(Json(services.pools.status(&pool).await?))
}
