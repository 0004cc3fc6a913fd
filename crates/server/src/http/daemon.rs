//! The daemon itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use crate::daemon::Services;
use crate::wire::Daemon;

/// The daemon that answers.
#[utoipa::path(get, path = "/v1/daemon", tag = "daemon", responses((status = 200, body = Daemon)))]
pub(super) async fn get(State(services): State<Arc<Services>>) -> Json<Daemon> {
    Json(services.describe())
}
