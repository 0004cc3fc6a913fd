//! Pools and their drives.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::answer::{Body, Named};
use crate::daemon::Services;
use crate::error::Result;
use crate::wire::{
    AddDrive, ClosePool, CreatePool, ErrorAnswer, LimitRepair, OpenPool, Operation, OperationKind, Pool,
    ReturnDrive,
};

/// What a request that starts an operation answers.
pub(super) type Started = (StatusCode, Json<Operation>);

pub(super) fn started(operation: Operation) -> Started {
    (StatusCode::ACCEPTED, Json(operation))
}

/// The pools.
#[utoipa::path(
    get, operation_id = "list_pools", path = "/v1/pools", tag = "pools",
    responses(
        (status = 200, description = "Done", body = Vec<Pool>),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn list(State(services): State<Arc<Services>>) -> Result<Json<Vec<Pool>>> {
    Ok(Json(services.pools.list().await?))
}

/// One pool.
#[utoipa::path(
    get, operation_id = "get_pool", path = "/v1/pools/{pool}", tag = "pools",
    params(("pool" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "Done", body = Pool),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn get(
    State(services): State<Arc<Services>>,
    Named(pool): Named<String>,
) -> Result<Json<Pool>> {
    Ok(Json(services.pools.status(&pool).await?))
}

/// Makes a pool and opens it.
#[utoipa::path(
    post, operation_id = "create_pool", path = "/v1/pools", tag = "pools", request_body = CreatePool,
    responses(
        (status = 202, description = "Begun: watch the operation", body = Operation),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn create(
    State(services): State<Arc<Services>>,
    Body(request): Body<CreatePool>,
) -> Result<Started> {
    services.pools.check_idle(&request.name)?;
    let (pools, name) = (services.pools.clone(), request.name.clone());
    let create = |progress| async move { pools.create(request, &progress).await };
    services.operations.start(OperationKind::PoolCreate, &name, create).map(started)
}

/// Opens a pool.
#[utoipa::path(
    post, operation_id = "open_pool", path = "/v1/pools/{pool}/open", tag = "pools", request_body = OpenPool,
    params(("pool" = String, Path, description = "Its name")),
    responses(
        (status = 202, description = "Begun: watch the operation", body = Operation),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn open(
    State(services): State<Arc<Services>>,
    Named(name): Named<String>,
    Body(request): Body<OpenPool>,
) -> Result<Started> {
    services.pools.check_idle(&name)?;
    let (inside, pool) = (services.clone(), name.clone());
    let open = |progress| async move {
        inside.pools.open(&pool, request, &progress).await?;
        inside.exports.activate(&pool).await;
        Ok(())
    };
    services.operations.start(OperationKind::PoolOpen, &name, open).map(started)
}

/// Closes a pool. It stays closed when the daemon is restarted.
#[utoipa::path(
    post, operation_id = "close_pool", path = "/v1/pools/{pool}/close", tag = "pools", request_body = ClosePool,
    params(("pool" = String, Path, description = "Its name")),
    responses(
        (status = 202, description = "Begun: watch the operation", body = Operation),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn close(
    State(services): State<Arc<Services>>,
    Named(name): Named<String>,
    Body(request): Body<ClosePool>,
) -> Result<Started> {
    services.pools.check_known(&name)?;
    services.exports.check_unused(&name, request.force)?;
    let (inside, pool) = (services.clone(), name.clone());
    let close = move |progress| async move {
        inside.exports.deactivate(&pool).await;
        inside.pools.close(&pool, request.forget, &progress).await
    };
    services.operations.start(OperationKind::PoolClose, &name, close).map(started)
}

/// Destroys a pool that is open: its data is lost.
#[utoipa::path(
    delete, operation_id = "destroy_pool", path = "/v1/pools/{pool}", tag = "pools",
    params(("pool" = String, Path, description = "Its name")),
    responses(
        (status = 202, description = "Begun: watch the operation", body = Operation),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn destroy(
    State(services): State<Arc<Services>>,
    Named(name): Named<String>,
) -> Result<Started> {
    services.exports.check_unused(&name, false)?;
    services.pools.get(&name)?;
    let (pools, pool) = (services.pools.clone(), name.clone());
    let destroy = |progress| async move { pools.destroy(&pool, &progress).await };
    services.operations.start(OperationKind::PoolDestroy, &name, destroy).map(started)
}

/// Takes a drive out of use, as if it had failed.
#[utoipa::path(
    post, operation_id = "fail_drive", path = "/v1/pools/{pool}/drives/{index}/fail", tag = "pools",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("index" = u16, Path, description = "The drive's number in the pool")
    ),
    responses(
        (status = 200, description = "Done", body = Pool),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn fail_drive(
    State(services): State<Arc<Services>>,
    Named((pool, index)): Named<(String, u16)>,
) -> Result<Json<Pool>> {
    services.pools.fail_drive(&pool, index).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

/// Takes a new drive into a pool. Its space is there at once.
#[utoipa::path(
    post, operation_id = "add_drive", path = "/v1/pools/{pool}/drives", tag = "pools", request_body = AddDrive,
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 202, description = "Begun: watch the operation", body = Operation),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn add_drive(
    State(services): State<Arc<Services>>,
    Named(name): Named<String>,
    Body(request): Body<AddDrive>,
) -> Result<Started> {
    services.pools.get(&name)?;
    let (pools, pool) = (services.pools.clone(), name.clone());
    let add = |progress| async move { pools.add_drive(&pool, &request, &progress).await };
    services.operations.start(OperationKind::DriveAdd, &name, add).map(started)
}

/// Takes a new drive into a pool in place of another one, which is emptied and leaves it, or is lost already.
#[utoipa::path(
    post, operation_id = "replace_drive", path = "/v1/pools/{pool}/drives/{index}/replace", tag = "pools",
    request_body = AddDrive,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("index" = u16, Path, description = "The number of the drive that is replaced")
    ),
    responses(
        (status = 202, description = "Begun: watch the operation, then the pool", body = Operation),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn replace_drive(
    State(services): State<Arc<Services>>,
    Named((name, index)): Named<(String, u16)>,
    Body(request): Body<AddDrive>,
) -> Result<Started> {
    services.pools.get(&name)?;
    let (pools, pool) = (services.pools.clone(), name.clone());
    let replace = move |progress| async move { pools.replace_drive(&pool, index, &request, &progress).await };
    services.operations.start(OperationKind::DriveReplace, &name, replace).map(started)
}

/// Has a drive emptied. It leaves the pool when everything that it holds is on the others: watch the pool.
#[utoipa::path(
    post, operation_id = "evacuate_drive", path = "/v1/pools/{pool}/drives/{index}/evacuate", tag = "pools",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("index" = u16, Path, description = "The drive's number in the pool")
    ),
    responses(
        (status = 200, description = "Begun", body = Pool),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn evacuate_drive(
    State(services): State<Arc<Services>>,
    Named((pool, index)): Named<(String, u16)>,
) -> Result<Json<Pool>> {
    services.pools.evacuate_drive(&pool, index, true).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

/// Keeps a drive that was to be emptied. What was moved stays where it is.
#[utoipa::path(
    post, operation_id = "keep_drive", path = "/v1/pools/{pool}/drives/{index}/keep", tag = "pools",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("index" = u16, Path, description = "The drive's number in the pool")
    ),
    responses(
        (status = 200, description = "Done", body = Pool),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn keep_drive(
    State(services): State<Arc<Services>>,
    Named((pool, index)): Named<(String, u16)>,
) -> Result<Json<Pool>> {
    services.pools.evacuate_drive(&pool, index, false).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

/// Takes a drive that was lost back into use. Only what it missed is written.
#[utoipa::path(
    post, operation_id = "return_drive", path = "/v1/pools/{pool}/drives/{index}/return", tag = "pools",
    request_body = ReturnDrive,
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("index" = u16, Path, description = "The drive's number in the pool")
    ),
    responses(
        (status = 200, description = "Done", body = Pool),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn return_drive(
    State(services): State<Arc<Services>>,
    Named((pool, index)): Named<(String, u16)>,
    Body(request): Body<ReturnDrive>,
) -> Result<Json<Pool>> {
    services.pools.return_drive(&pool, index, &request).await?;
    Ok(Json(services.pools.status(&pool).await?))
}

/// Sets how fast what is missing is written to other drives, until the pool is closed.
#[utoipa::path(
    patch, operation_id = "limit_repair", path = "/v1/pools/{pool}/repair", tag = "pools", request_body = LimitRepair,
    params(("pool" = String, Path, description = "The pool's name")),
    responses(
        (status = 200, description = "Done", body = Pool),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn limit_repair(
    State(services): State<Arc<Services>>,
    Named(pool): Named<String>,
    Body(request): Body<LimitRepair>,
) -> Result<Json<Pool>> {
    services.pools.limit_repair(&pool, request).await?;
    Ok(Json(services.pools.status(&pool).await?))
}
