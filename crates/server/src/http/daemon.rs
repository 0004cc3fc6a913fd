//! The daemon itself.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use crate::daemon::Services;
use crate::wire::{Daemon, ErrorAnswer};

/// The daemon that answers.
#[utoipa::path(
    get, operation_id = "get_daemon", path = "/v1/daemon", tag = "daemon",
    responses(
        (status = 200, description = "Done", body = Daemon),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn get(State(services): State<Arc<Services>>) -> Json<Daemon> {
    Json(services.describe())
}
