//! Handlers of imports and exports of images.

use std::sync::Arc;

use api::types::{ExportImage, ImportImage, OperationKind};
use axum::extract::State;

use super::extract::{JsonBody, PathParameters};
use super::pools::{Started, started};
use crate::error::Result;
use crate::services::Services;

/// The way to copy an image of a cluster.
const COPY_HINT: &str = "copy it with 'qemu-img convert' and an NBD export of the volume";

pub(super) async fn import(
    State(services): State<Arc<Services>>,
    PathParameters(pool): PathParameters<String>,
    JsonBody(request): JsonBody<ImportImage>,
) -> Result<Started> {
    services.volumes.check_pool(&pool, "imports of images", COPY_HINT)?;
    let (images, target) = (services.images.clone(), format!("{pool}/{}", request.name));
    let import = |progress| async move { images.import(&pool, request, &progress).await };
    services.operations.start_cancellable(OperationKind::ImageImport, &target, import).map(started)
}

pub(super) async fn export(
    State(services): State<Arc<Services>>,
    PathParameters((pool, volume)): PathParameters<(String, String)>,
    JsonBody(request): JsonBody<ExportImage>,
) -> Result<Started> {
    services.volumes.check_pool(&pool, "image files", COPY_HINT)?;
    let (images, target) = (services.images.clone(), format!("{pool}/{volume}"));
    let export = |progress| async move { images.export(&pool, &volume, request, &progress).await };
    services.operations.start_cancellable(OperationKind::ImageExport, &target, export).map(started)
}
