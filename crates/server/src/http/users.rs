//! Handlers of the users, groups and policies of S3.

use std::sync::Arc;

use api::types::{
    ChangeS3Group, ChangeS3Policy, ChangeS3User, CreateS3Group, CreateS3Policy, CreateS3User, S3Group,
    S3Policy, S3User,
};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::extract::{JsonBody, PathParameters};
use crate::blocking::blocking;
use crate::error::Result;
use crate::objects::{Accounts, missing};
use crate::services::Services;

type Shared = State<Arc<Services>>;

/// Runs work with the accounts, whose files it may write.
pub(super) async fn with_accounts<T: Send + 'static>(
    services: &Services,
    work: impl FnOnce(&Accounts) -> Result<T> + Send + 'static,
) -> Result<T> {
    let accounts = services.objects.accounts.clone();
    blocking(move || work(&accounts)).await?
}

fn group_of(accounts: &Accounts, name: &str) -> Result<S3Group> {
    let found = accounts.users.groups().into_iter().find(|group| group.name == name);
    found.ok_or_else(|| missing("group", name))
}

fn policy_of(accounts: &Accounts, name: &str) -> Result<S3Policy> {
    let found = accounts.policies().into_iter().find(|policy| policy.name == name);
    found.ok_or_else(|| missing("policy", name))
}

pub(super) async fn users(State(services): Shared) -> Json<Vec<S3User>> {
    Json(services.objects.accounts.users())
}

pub(super) async fn user(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<Json<S3User>> {
    Ok(Json(services.objects.accounts.user(&name)?))
}

pub(super) async fn create_user(
    State(services): Shared,
    JsonBody(request): JsonBody<CreateS3User>,
) -> Result<(StatusCode, Json<S3User>)> {
    let create = |accounts: &Accounts| {
        let name = request.name.clone();
        accounts.users.create_user(request)?;
        accounts.user(&name)
    };
    Ok((StatusCode::CREATED, Json(with_accounts(&services, create).await?)))
}

pub(super) async fn change_user(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
    JsonBody(request): JsonBody<ChangeS3User>,
) -> Result<Json<S3User>> {
    let change = move |accounts: &Accounts| {
        accounts.users.change_user(&name, request)?;
        accounts.user(&name)
    };
    Ok(Json(with_accounts(&services, change).await?))
}

pub(super) async fn delete_user(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<StatusCode> {
    with_accounts(&services, move |accounts| accounts.delete_user(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn groups(State(services): Shared) -> Json<Vec<S3Group>> {
    Json(services.objects.accounts.users.groups())
}

pub(super) async fn group(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<Json<S3Group>> {
    Ok(Json(group_of(&services.objects.accounts, &name)?))
}

pub(super) async fn create_group(
    State(services): Shared,
    JsonBody(request): JsonBody<CreateS3Group>,
) -> Result<(StatusCode, Json<S3Group>)> {
    let create = |accounts: &Accounts| {
        let name = request.name.clone();
        accounts.users.create_group(request)?;
        group_of(accounts, &name)
    };
    Ok((StatusCode::CREATED, Json(with_accounts(&services, create).await?)))
}

pub(super) async fn change_group(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
    JsonBody(request): JsonBody<ChangeS3Group>,
) -> Result<Json<S3Group>> {
    let change = move |accounts: &Accounts| {
        accounts.users.change_group(&name, request)?;
        group_of(accounts, &name)
    };
    Ok(Json(with_accounts(&services, change).await?))
}

pub(super) async fn delete_group(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<StatusCode> {
    with_accounts(&services, move |accounts| accounts.users.delete_group(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn policies(State(services): Shared) -> Json<Vec<S3Policy>> {
    Json(services.objects.accounts.policies())
}

pub(super) async fn policy(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<Json<S3Policy>> {
    Ok(Json(policy_of(&services.objects.accounts, &name)?))
}

pub(super) async fn create_policy(
    State(services): Shared,
    JsonBody(request): JsonBody<CreateS3Policy>,
) -> Result<(StatusCode, Json<S3Policy>)> {
    let create = |accounts: &Accounts| {
        let name = request.name.clone();
        accounts.users.create_policy(request)?;
        policy_of(accounts, &name)
    };
    Ok((StatusCode::CREATED, Json(with_accounts(&services, create).await?)))
}

pub(super) async fn change_policy(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
    JsonBody(request): JsonBody<ChangeS3Policy>,
) -> Result<Json<S3Policy>> {
    let change = move |accounts: &Accounts| {
        accounts.users.change_policy(&name, &request)?;
        policy_of(accounts, &name)
    };
    Ok(Json(with_accounts(&services, change).await?))
}

pub(super) async fn delete_policy(
    State(services): Shared,
    PathParameters(name): PathParameters<String>,
) -> Result<StatusCode> {
    with_accounts(&services, move |accounts| accounts.delete_policy(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
