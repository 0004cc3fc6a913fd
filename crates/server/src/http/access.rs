//! Handlers of identities, sessions, tokens and the audit log.

use std::sync::Arc;

use api::types::{AuditQuery, AuditRecord, CreateSession, CreateToken, CreatedToken, Identity, Token};
use axum::Json;
use axum::extract::{ConnectInfo, Extension, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;

use super::authentication::{SESSION_COOKIE, cookie, limited_address};
use super::extract::{JsonBody, PathParameters, QueryParameters};
use super::sender::Sender;
use crate::access::SESSION_TIME;
use crate::error::Result;
use crate::services::Services;

/// Number of records of the audit log if a request does not name one, and the most.
const RECORDS: usize = 1000;
const RECORDS_MAX: usize = 10_000;

pub(super) async fn identity(Extension(identity): Extension<Identity>) -> Json<Identity> {
    Json(identity)
}

pub(super) async fn create_session(
    State(services): State<Arc<Services>>,
    ConnectInfo(sender): ConnectInfo<Sender>,
    JsonBody(request): JsonBody<CreateSession>,
) -> Result<impl IntoResponse> {
    let session = services.access.begin_session(request.token.trim(), limited_address(sender))?;
    tracing::info!(client = session.identity.name, address = ?sender.address(), "session of the console began");
    let cookie = set_cookie(&session.cookie, SESSION_TIME.as_secs());
    // For the audit log.
    let identity = Extension(Identity { csrf_token: None, ..session.identity.clone() });
    Ok((StatusCode::CREATED, [(SET_COOKIE, cookie)], identity, Json(session.identity)))
}

pub(super) async fn delete_session(
    State(services): State<Arc<Services>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse> {
    if let Some(cookie) = cookie(&headers) {
        services.access.end_session(cookie)?;
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, set_cookie("", 0))]))
}

fn set_cookie(value: &str, seconds: u64) -> String {
    format!("{SESSION_COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Strict")
}

pub(super) async fn tokens(State(services): State<Arc<Services>>) -> Json<Vec<Token>> {
    Json(services.access.tokens())
}

pub(super) async fn create_token(
    State(services): State<Arc<Services>>,
    JsonBody(request): JsonBody<CreateToken>,
) -> Result<(StatusCode, Json<CreatedToken>)> {
    Ok((StatusCode::CREATED, Json(services.access.create_token(&request)?)))
}

pub(super) async fn delete_token(
    State(services): State<Arc<Services>>,
    PathParameters(id): PathParameters<String>,
) -> Result<StatusCode> {
    services.access.delete_token(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn audit(
    State(services): State<Arc<Services>>,
    QueryParameters(AuditQuery { last }): QueryParameters<AuditQuery>,
) -> Result<Json<Vec<AuditRecord>>> {
    Ok(Json(services.access.audit(last.unwrap_or(RECORDS).min(RECORDS_MAX))?))
}
