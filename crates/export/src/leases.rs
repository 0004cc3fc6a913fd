//! The leases by which the clients of one reactor use exported volumes.
//!
//! Always true: after [`Leases::revoke`] no request of the named clients begins on the volume. Must
//! not know protocols.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use reactor::Reactor;

use crate::Volume;
use crate::exported_volume::{ExportedVolume, Lease};

/// Time for requests in flight when an export is stopped.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two checks for requests in flight.
const REVOKE_PAUSE: Duration = Duration::from_millis(1);

/// The leases of one reactor's clients.
pub(crate) struct Leases<V> {
    all: RefCell<Vec<Weak<Lease<V>>>>,
}

impl<V> Default for Leases<V> {
    fn default() -> Self {
        Self { all: RefCell::default() }
    }
}

impl<V: Volume> Leases<V> {
    /// Opens a volume for a client that `connections` counts.
    pub(crate) fn open(&self, volume: V, read_only: bool, connections: &Arc<AtomicU64>) -> ExportedVolume<V> {
        let volume = ExportedVolume::counted(volume, read_only, connections.clone());
        let mut all = self.all.borrow_mut();
        all.retain(|lease| lease.strong_count() > 0);
        all.push(volume.lease());
        volume
    }

    /// Revokes the leases that `connections` counts, and waits a limited time for their requests in
    /// flight.
    pub(crate) async fn revoke(&self, connections: &Arc<AtomicU64>) {
        let leases: Vec<Rc<_>> = self.all.borrow().iter().filter_map(Weak::upgrade).collect();
        let own = leases.iter().filter(|lease| lease.is_counted_by(connections));
        let in_flight: Vec<_> = own.filter_map(|lease| lease.revoke()).collect();
        let reactor = Reactor::current();
        let end = reactor.now() + REVOKE_TIMEOUT;
        while in_flight.iter().any(|volume| volume.strong_count() > 0) && reactor.now() < end {
            reactor.sleep(REVOKE_PAUSE).await;
        }
    }
}
