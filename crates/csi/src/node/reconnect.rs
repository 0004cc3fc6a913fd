//! Connections of NBD disks after a restart of the daemon. The kernel keeps the requests of a disk
//! without a connection, and waits for another one.
//!
//! Always true: a disk gets another connection only when the daemon has ended the earlier one, with
//! all of its requests. An earlier write could otherwise be executed after a later one.

use std::time::Duration;

use api::types::{Export, ExportState, Protocol};

use super::context::NodeContext;
use super::devices::nbd_export;

/// Pause between two polls of the disks.
const PAUSE: Duration = Duration::from_millis(500);

impl NodeContext {
    /// Connects NBD disks again that have lost their daemon, until the future is dropped.
    pub(crate) async fn keep_connected(self) {
        loop {
            tokio::time::sleep(PAUSE).await;
            if !self.nbd.has_disks() {
                continue;
            }
            // Without a daemon, the disks wait for the next one.
            let Ok(exports) = self.daemon.client.list_exports().await else { continue };
            for export in exports.iter().filter(|export| is_disconnected(export)) {
                self.reconnect(export).await;
            }
        }
    }

    /// Connects the disk of an export again. A failure is repeated after the next pause.
    ///
    /// A call that unmounts the volume may wait for the connection, so this takes no lock. Beside a
    /// call that attaches or detaches the volume, the kernel keeps a connection that works, and
    /// refuses one for a disk that is removed.
    async fn reconnect(&self, export: &Export) {
        let Ok(disk) = nbd_export(export) else { return };
        if self.nbd.device(&disk).is_none() {
            return;
        }
        match self.nbd.reconnect(&disk).await {
            Ok(()) => tracing::info!(disk = disk.uri, "connected a disk again"),
            Err(error) => tracing::warn!(disk = disk.uri, %error, "cannot connect a disk again"),
        }
    }
}

/// Returns true for an export of which the daemon has no connection.
fn is_disconnected(export: &Export) -> bool {
    (export.protocol, export.state, export.connections) == (Protocol::Nbd, ExportState::Active, 0)
}
