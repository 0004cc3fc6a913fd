//! Handlers of the webhooks of S3.

use std::sync::Arc;

use api::types::{ChangeWebhook, CreateWebhook, Webhook};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{JsonBody, PathParameters};
use crate::blocking::complete;
use crate::error::Result;
use crate::services::Services;

type Shared = State<Arc<Services>>;

pub(super) async fn webhooks(State(services): Shared) -> Json<Vec<Webhook>> {
    Json(services.objects.webhooks().await)
}

pub(super) async fn webhook(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<Json<Webhook>> {
    Ok(Json(services.objects.webhook(&name).await?))
}

pub(super) async fn create_webhook(
    State(services): Shared,
    JsonBody(request): JsonBody<CreateWebhook>,
) -> Result<(StatusCode, Json<Webhook>)> {
    Ok((StatusCode::CREATED, Json(services.objects.create_webhook(request).await?)))
}

pub(super) async fn change_webhook(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
    JsonBody(request): JsonBody<ChangeWebhook>,
) -> Result<Json<Webhook>> {
    Ok(Json(services.objects.change_webhook(&name, request).await?))
}

pub(super) async fn delete_webhook(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<StatusCode> {
    complete(async move { services.objects.delete_webhook(&name).await }).await?;
    Ok(StatusCode::NO_CONTENT)
}
