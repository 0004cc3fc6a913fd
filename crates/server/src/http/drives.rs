//! Drives that may not belong to a pool.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::answer::Body;
use crate::daemon::Services;
use crate::error::Result;
use crate::identify;
use crate::request;
use crate::wire::{ErrorAnswer, IdentifiedDrive, IdentifyDrives};

/// Looks what drives are and hold. Nothing is written.
#[utoipa::path(
    post, operation_id = "identify_drives", path = "/v1/drives/identify", tag = "drives", request_body = IdentifyDrives,
    responses(
        (status = 200, description = "Done", body = Vec<IdentifiedDrive>),
        (status = "default", description = "Refused or failed", body = ErrorAnswer)
    )
)]
pub(super) async fn identify(
    State(services): State<Arc<Services>>,
    Body(request): Body<IdentifyDrives>,
) -> Result<Json<Vec<IdentifiedDrive>>> {
    let paths = request.drives.iter().map(|path| request::path(path)).collect::<Result<Vec<_>>>()?;
    Ok(Json(identify::all(&services.reactors.next(), paths).await?))
}
