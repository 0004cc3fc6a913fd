//! Live status for the console: one snapshot for all of its clients.
//!
//! Invariant: a slow client skips snapshots and delays nobody.

use std::sync::{Mutex, PoisonError};

use axum::body::Bytes;
use tokio::sync::watch;

use crate::error::{Error, ErrorKind, Result};

/// A snapshot as a server-sent event, whose memory all clients share.
pub(crate) type Snapshot = Option<Bytes>;

/// The source of live status.
pub(crate) struct LiveUpdates {
    /// `None` once the daemon shuts down.
    sender: Mutex<Option<watch::Sender<Snapshot>>>,
}

impl Default for LiveUpdates {
    fn default() -> Self {
        Self { sender: Mutex::new(Some(watch::Sender::new(None))) }
    }
}

impl LiveUpdates {
    /// Returns a receiver of snapshots, which ends when the daemon shuts down.
    ///
    /// # Errors
    /// `ShuttingDown`.
    pub(crate) fn subscribe(&self) -> Result<watch::Receiver<Snapshot>> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = sender.as_ref().map(|sender| {
            let mut receiver = sender.subscribe();
            // The last snapshot is sent at once.
            receiver.mark_changed();
            receiver
        });
        receiver.ok_or_else(|| Error::new(ErrorKind::ShuttingDown, "the daemon is shutting down"))
    }

    /// Ends all receivers.
    pub(crate) fn close(&self) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Returns true if there are receivers.
    pub(crate) fn has_clients(&self) -> bool {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.as_ref().is_some_and(|sender| sender.receiver_count() > 0)
    }

    /// Sends a snapshot to all receivers.
    pub(crate) fn publish(&self, snapshot: Bytes) {
        if let Some(sender) = &*self.sender.lock().unwrap_or_else(PoisonError::into_inner) {
            sender.send_replace(Some(snapshot));
        }
    }
}
