//! Exports.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;

use super::answer::Body;
use crate::daemon::Services;
use crate::error::Result;
use crate::wire::{CreateExport, ErrorAnswer, Export};

/// The exports.
#[utoipa::path(get, path = "/v1/exports", tag = "exports", responses((status = 200, body = Vec<Export>)))]
pub(super) async fn list(State(services): State<Arc<Services>>) -> Json<Vec<Export>> {
    Json(services.exports.list())
}

/// Exports a volume.
#[utoipa::path(
    post, path = "/v1/exports", tag = "exports", request_body = CreateExport,
    responses((status = 201, body = Export), (status = 404, body = ErrorAnswer), (status = 409, body = ErrorAnswer))
)]
pub(super) async fn create(
    State(services): State<Arc<Services>>,
    Body(request): Body<CreateExport>,
) -> Result<(StatusCode, Json<Export>)> {
    Ok((StatusCode::CREATED, Json(services.exports.create(request).await?)))
}

/// Ends the export of a volume; its clients are disconnected.
#[utoipa::path(
    delete, path = "/v1/exports/{pool}/{volume}", tag = "exports",
    params(
        ("pool" = String, Path, description = "The pool's name"),
        ("volume" = String, Path, description = "The volume's name")
    ),
    responses((status = 204), (status = 404, body = ErrorAnswer))
)]
pub(super) async fn delete(
    State(services): State<Arc<Services>>,
    Path((pool, volume)): Path<(String, String)>,
) -> Result<StatusCode> {
    services.exports.delete(&pool, &volume).await?;
    Ok(StatusCode::NO_CONTENT)
}
