//! Handlers of pools.

use std::sync::Arc;

use api::types::{ChangeRebuild, ClosePool, CreatePool, OpenPool, Operation, OperationKind, Pool};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};

use super::audit::StartedOperation;
use super::extract::{JsonBody, PathParameters};
use crate::error::Result;
use crate::services::Services;

/// Response to a request that starts an operation.
pub(super) type Started = (StatusCode, Extension<StartedOperation>, Json<Operation>);

pub(super) fn started(operation: Operation) -> Started {
    (StatusCode::ACCEPTED, Extension(StartedOperation(operation.id)), Json(operation))
}

pub(super) async fn list(State(services): State<Arc<Services>>) -> Result<Json<Vec<Pool>>> {
    Ok(Json(services.pools.list().await?))
}

pub(super) async fn get(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
) -> Result<Json<Pool>> {
    Ok(Json(services.pools.status(&pool).await?))
}

pub(super) async fn create(
    State(services): State<Arc<Services>>,
    JsonBody(request): JsonBody<CreatePool>,
) -> Result<Started> {
    services.pools.check_idle(&request.name)?;
    let (pools, name) = (services.pools.clone(), request.name.clone());
    let create = |progress| async move { pools.create(request, &progress).await };
    services.operations.start(OperationKind::PoolCreate, &name, create).map(started)
}

pub(super) async fn open(
    State(services): State<Arc<Services>>,
    PathParameters(name): PathParameters<String>,
    JsonBody(request): JsonBody<OpenPool>,
) -> Result<Started> {
    services.pools.check_idle(&name)?;
    let (inside, pool) = (services.clone(), name.clone());
    let open = |progress| async move {
        inside.pools.open(&pool, request, &progress).await?;
        inside.images.clean_up(&pool, &inside.operations).await;
        inside.exports.activate(&pool).await;
        inside.objects.activate(&pool).await;
        Ok(())
    };
    services.operations.start(OperationKind::PoolOpen, &name, open).map(started)
}

pub(super) async fn close(
    State(services): State<Arc<Services>>,
    PathParameters(name): PathParameters<String>,
    JsonBody(request): JsonBody<ClosePool>,
) -> Result<Started> {
    services.pools.check_registered(&name)?;
    services.exports.check_unused(&name, request.force)?;
    let (inside, pool) = (services.clone(), name.clone());
    let close = move |progress| async move {
        inside.exports.deactivate(&pool).await;
        inside.objects.deactivate(&pool).await;
        inside.pools.close(&pool, request.forget, &progress).await?;
        if request.forget {
            inside.objects.forget(&pool);
        }
        Ok(())
    };
    services.operations.start(OperationKind::PoolClose, &name, close).map(started)
}

pub(super) async fn destroy(
    State(services): State<Arc<Services>>,
    PathParameters(name): PathParameters<String>,
) -> Result<Started> {
    services.exports.check_unused(&name, false)?;
    services.objects.check_stopped(&name)?;
    services.pools.get(&name)?;
    let (pools, pool) = (services.pools.clone(), name.clone());
    let destroy = |progress| async move { pools.destroy(&pool, &progress).await };
    services.operations.start(OperationKind::PoolDestroy, &name, destroy).map(started)
}

pub(super) async fn change_rebuild(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
    JsonBody(request): JsonBody<ChangeRebuild>,
) -> Result<Json<Pool>> {
    services.pools.change_rebuild(&pool, request).await?;
    Ok(Json(services.pools.status(&pool).await?))
}
