//! Handlers of exports.

use std::sync::Arc;

use api::types::{CreateExport, DeleteExportQuery, Export};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{JsonBody, PathParameters, QueryParameters};
use crate::blocking::complete;
use crate::error::Result;
use crate::services::Services;

pub(super) async fn list(State(services): State<Arc<Services>>) -> Json<Vec<Export>> {
    Json(services.exports.list())
}

pub(super) async fn create(
    State(services): State<Arc<Services>>,
    JsonBody(request): JsonBody<CreateExport>,
) -> Result<(StatusCode, Json<Export>)> {
    let created = complete(async move { services.exports.create(request).await }).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

pub(super) async fn delete(
    State(services): State<Arc<Services>>,
    PathParameters((pool, volume)): PathParameters<(String, String)>,
    QueryParameters(query): QueryParameters<DeleteExportQuery>,
) -> Result<StatusCode> {
    complete(async move { services.exports.delete(&pool, &volume, &query).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
