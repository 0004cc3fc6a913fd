//! Handlers of the identity providers and roles of S3.

use std::sync::Arc;

use api::types::{ChangeS3Provider, ChangeS3Role, CreateS3Provider, CreateS3Role, S3Provider, S3Role};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{JsonBody, PathParameters};
use super::users::with_accounts;
use crate::error::Result;
use crate::objects::Accounts;
use crate::services::Services;

type Shared = State<Arc<Services>>;

pub(super) async fn providers(State(services): Shared) -> Json<Vec<S3Provider>> {
    Json(services.objects.accounts.web_identity.providers())
}

pub(super) async fn provider(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<Json<S3Provider>> {
    Ok(Json(services.objects.accounts.provider(&name)?))
}

pub(super) async fn create_provider(
    State(services): Shared,
    JsonBody(request): JsonBody<CreateS3Provider>,
) -> Result<(StatusCode, Json<S3Provider>)> {
    let create = |accounts: &Accounts| {
        let name = request.name.clone();
        accounts.web_identity.roles.create_provider(request)?;
        accounts.provider(&name)
    };
    Ok((StatusCode::CREATED, Json(with_accounts(&services, create).await?)))
}

pub(super) async fn change_provider(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
    JsonBody(request): JsonBody<ChangeS3Provider>,
) -> Result<Json<S3Provider>> {
    let change = move |accounts: &Accounts| {
        accounts.change_provider(&name, request)?;
        accounts.provider(&name)
    };
    Ok(Json(with_accounts(&services, change).await?))
}

pub(super) async fn delete_provider(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<StatusCode> {
    with_accounts(&services, move |accounts| accounts.web_identity.delete_provider(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn roles(State(services): Shared) -> Json<Vec<S3Role>> {
    Json(services.objects.accounts.web_identity.roles())
}

pub(super) async fn role(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<Json<S3Role>> {
    Ok(Json(services.objects.accounts.role(&name)?))
}

pub(super) async fn create_role(
    State(services): Shared,
    JsonBody(request): JsonBody<CreateS3Role>,
) -> Result<(StatusCode, Json<S3Role>)> {
    let create = |accounts: &Accounts| {
        let name = request.name.clone();
        accounts.create_role(request)?;
        accounts.role(&name)
    };
    Ok((StatusCode::CREATED, Json(with_accounts(&services, create).await?)))
}

pub(super) async fn change_role(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
    JsonBody(request): JsonBody<ChangeS3Role>,
) -> Result<Json<S3Role>> {
    let change = move |accounts: &Accounts| {
        accounts.change_role(&name, request)?;
        accounts.role(&name)
    };
    Ok(Json(with_accounts(&services, change).await?))
}

pub(super) async fn delete_role(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<StatusCode> {
    with_accounts(&services, move |accounts| accounts.web_identity.roles.delete_role(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
