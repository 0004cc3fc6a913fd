//! Handlers of the users and access keys of the object gateways of clusters.

use std::sync::Arc;

use api::types::{AccessKey, CreateKey, CreateS3User, S3User};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{JsonBody, PathParameters};
use crate::blocking::complete;
use crate::error::Result;
use crate::services::Services;

pub(super) async fn users(
    State(services): State<Arc<Services>>,
    PathParameters(cluster): PathParameters<String>,
) -> Result<Json<Vec<S3User>>> {
    Ok(Json(services.gateways.users(&cluster).await?))
}

pub(super) async fn user(
    State(services): State<Arc<Services>>,
    PathParameters((cluster, user)): PathParameters<(String, String)>,
) -> Result<Json<S3User>> {
    Ok(Json(services.gateways.user(&cluster, &user).await?))
}

pub(super) async fn create_user(
    State(services): State<Arc<Services>>,
    PathParameters(cluster): PathParameters<String>,
    JsonBody(request): JsonBody<CreateS3User>,
) -> Result<(StatusCode, Json<S3User>)> {
    let gateways = services.gateways.clone();
    let created = complete(async move { gateways.create_user(&cluster, request).await }).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

pub(super) async fn delete_user(
    State(services): State<Arc<Services>>,
    PathParameters((cluster, user)): PathParameters<(String, String)>,
) -> Result<StatusCode> {
    let gateways = services.gateways.clone();
    complete(async move { gateways.delete_user(&cluster, &user).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn keys(
    State(services): State<Arc<Services>>,
    PathParameters(cluster): PathParameters<String>,
) -> Result<Json<Vec<AccessKey>>> {
    Ok(Json(services.gateways.keys(&cluster).await?))
}

pub(super) async fn create_key(
    State(services): State<Arc<Services>>,
    PathParameters(cluster): PathParameters<String>,
    JsonBody(request): JsonBody<CreateKey>,
) -> Result<(StatusCode, Json<AccessKey>)> {
    let gateways = services.gateways.clone();
    let created = complete(async move { gateways.create_key(&cluster, request).await }).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

pub(super) async fn delete_key(
    State(services): State<Arc<Services>>,
    PathParameters((cluster, key)): PathParameters<(String, String)>,
) -> Result<StatusCode> {
    let gateways = services.gateways.clone();
    complete(async move { gateways.delete_key(&cluster, &key).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
