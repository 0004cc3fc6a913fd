//! Live status as server-sent events.
//!
//! Invariant: a stream ends after a bounded time, and its client authenticates again when it
//! reconnects, so that a deleted token is refused there too.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use http_body_util::channel::{Channel, Sender as BodySender};
use tokio::sync::watch;

use crate::error::Result;
use crate::live::Snapshot;
use crate::services::Services;

/// Longest time of a stream. Browsers reconnect.
const STREAM_TIME: Duration = Duration::from_secs(600);
/// Pause before a browser reconnects, in milliseconds.
const RETRY: &str = "retry: 1000\n\n";

pub(super) async fn stream(State(services): State<Arc<Services>>) -> Result<impl IntoResponse> {
    let snapshots = services.live.subscribe()?;
    let (sender, channel) = Channel::<Bytes>::new(1);
    tokio::spawn(async move {
        // An error of the time limit or of the client is the end in both cases.
        let _ = tokio::time::timeout(STREAM_TIME, send(snapshots, sender)).await;
    });
    Ok(([(CONTENT_TYPE, "text/event-stream")], Body::new(channel)))
}

/// Sends snapshots until the client disconnects or the daemon shuts down.
async fn send(mut snapshots: watch::Receiver<Snapshot>, mut sender: BodySender<Bytes>) {
    let mut next = Bytes::from_static(RETRY.as_bytes());
    loop {
        if sender.send_data(next).await.is_err() || snapshots.changed().await.is_err() {
            return;
        }
        let snapshot = snapshots.borrow_and_update().clone();
        // A comment stands for no snapshot, and shows whether the client is still there.
        next = snapshot.unwrap_or(Bytes::from_static(b":\n\n"));
    }
}
