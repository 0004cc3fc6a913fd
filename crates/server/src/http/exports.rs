//! Exports.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::answer::{Asked, Body, Named};
use crate::daemon::Services;
use crate::error::{Error, ErrorKind, Result};
use crate::wire::{CreateExport, DeleteExport, ErrorAnswer, Export, Protocol};

/// The exports.
#[utoipa::path(
    get, operation_id = "list_exports", path = "/v1/exports", tag = "exports",
    responses(
        (status = 200, description = "Done", body = Vec<Export>),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn list(State(services): State<Arc<Services>>) -> Json<Vec<Export>> {
    Json(services.exports.list())
}

/// Exports a volume.
#[utoipa::path(
    post, operation_id = "create_export", path = "/v1/exports", tag = "exports", request_body = CreateExport,
    responses(
        (status = 201, description = "Made", body = Export),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn create(
    State(services): State<Arc<Services>>,
    Body(request): Body<CreateExport>,
) -> Result<(StatusCode, Json<Export>)> {
    let created = to_its_end(async move { services.exports.create(request).await }).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// Deletes an export of a volume. Network clients and virtual machines are disconnected. A file that is open and a device that is
/// mounted stay, unless the request forces it.
#[utoipa::path(
    delete, operation_id = "delete_export", path = "/v1/exports/{pool}/{volume}", tag = "exports",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "The volume's name"),
        ("id" = Option<String>, Query, description = "The export's identifier, if the volume has several exports"),
        ("protocol" = Option<Protocol>, Query, description = "The export's protocol, if the volume has several exports"),
        ("force" = Option<bool>, Query, description = "Delete it even if this host uses it")
    ),
    responses(
        (status = 204, description = "Done"),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn delete(
    State(services): State<Arc<Services>>,
    Named((pool, volume)): Named<(String, String)>,
    Asked(request): Asked<DeleteExport>,
) -> Result<StatusCode> {
    to_its_end(async move { services.exports.delete(&pool, &volume, &request).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Does something to its end, although whoever asked for it may hang up: what is half made would be known to nobody.
async fn to_its_end<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let bug = |panic| Error::new(ErrorKind::Internal, format!("a bug in the daemon ended this: {panic}"));
    tokio::spawn(work).await.map_err(bug)?
}
