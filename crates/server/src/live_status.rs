//! Collection of the live status.
//!
//! Invariant: the status is collected at most once per interval, however many clients there are,
//! and not at all without clients.

use std::sync::Arc;
use std::time::Duration;

use api::types::{Export, ExportIo, LiveStatus};
use axum::body::Bytes;

use crate::error::{Error, ErrorKind, Result};
use crate::exports::IoSums;
use crate::services::Services;
use crate::unix_time::unix_time;

/// Interval of snapshots.
const INTERVAL: Duration = Duration::from_secs(1);
/// Most ended operations in a snapshot.
const OPERATIONS_MAX: usize = 20;

/// Collects and publishes snapshots until the task is aborted.
pub(crate) async fn run(services: Arc<Services>) {
    loop {
        if services.live.has_clients() {
            match collect(&services).await {
                Ok(snapshot) => services.live.publish(snapshot),
                Err(error) => tracing::debug!(%error, "no live status"),
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Returns the event of the current status.
async fn collect(services: &Services) -> Result<Bytes> {
    let with_io = services.exports.list_with_io();
    let io = with_io.iter().map(|(export, sums)| io_of(export, sums)).collect();
    let status = LiveStatus {
        time: unix_time(),
        pools: services.pools.list().await?,
        exports: with_io.into_iter().map(|(export, _)| export).collect(),
        io,
        operations: services.operations.recent(OPERATIONS_MAX),
    };
    let text = serde_json::to_string(&status)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("cannot encode the status: {error}")))?;
    Ok(format!("event: status\ndata: {text}\n\n").into())
}

fn io_of(export: &Export, [read, write, flush, discard]: &[IoSums; 4]) -> ExportIo {
    ExportIo {
        pool: export.pool.clone(),
        volume: export.volume.clone(),
        id: export.id.clone(),
        read_operations: read.operations,
        write_operations: write.operations,
        read_bytes: read.bytes,
        write_bytes: write.bytes,
        read_timed: read.buckets.iter().sum(),
        read_nanos: read.nanos,
        write_timed: write.buckets.iter().sum(),
        write_nanos: write.nanos,
        errors: read.errors + write.errors + flush.errors + discard.errors,
    }
}
