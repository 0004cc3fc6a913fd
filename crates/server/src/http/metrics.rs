//! Metrics: the handler of the API, and the listeners for Prometheus.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::IntoResponse;
use axum::routing::get;

use super::fallback::no_route;
use crate::error::Result;
use crate::metrics::{self, MetricsFormat};
use crate::services::Services;

/// Path of the metrics.
pub(super) const METRICS: &str = "/metrics";

pub(super) async fn render(
    State(services): State<Arc<Services>>,
    headers: HeaderMap,
) -> Result<impl IntoResponse> {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = MetricsFormat::accepted(accept);
    Ok(([(CONTENT_TYPE, format.content_type())], metrics::render(&services, format).await?))
}

/// Returns the routes of the listeners for Prometheus: metrics only, without authentication.
pub(crate) fn metrics_router(services: Arc<Services>) -> Router {
    Router::new().route(METRICS, get(render)).fallback(no_route).with_state(services)
}
