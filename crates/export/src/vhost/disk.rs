//! The interface between a vhost-user device and the exporter of a volume.
//!
//! Must not know the protocol.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Platform, Remote};

use crate::{OpenError, Volume};

/// A volume that one vhost-user device serves, on any number of reactors. Used from several
/// threads.
pub trait VhostDisk: Send + Sync + 'static {
    /// The volume as one reactor uses it.
    type Volume: Volume + 'static;

    /// Returns the name of the device in logs.
    fn name(&self) -> String;

    /// Returns the serial number for guests, of which they see up to 20 bytes.
    fn serial(&self) -> String;

    /// Returns the current size in bytes.
    fn size(&self) -> u64;

    /// Returns the sector size in bytes, as [`Volume::sector`]. Guests support 512 to 4096.
    fn sector(&self) -> u32;

    /// Returns true if guests may not write.
    fn read_only(&self) -> bool;

    /// Returns the reactors to which queues are assigned in turn.
    fn reactors(&self) -> &[Remote];

    /// Returns the number of queues that a guest may use: from 1 to [`super::QUEUES_MAX`].
    fn queues(&self) -> u16;

    /// Returns the time for which a queue without requests is polled before it waits for a
    /// notification.
    fn poll(&self) -> Duration;

    /// Returns the maximum time for which requests are coalesced while they keep a queue busy only
    /// partially. It is limited by [`VhostDisk::poll`].
    fn coalesce_delay(&self) -> Duration;

    /// Returns the platform of this thread's reactor, which is one of [`VhostDisk::reactors`].
    fn platform(&self) -> Rc<Platform>;

    /// Called when a front end has connected, and when it is gone and all its requests have ended.
    fn note_front_end(&self, connected: bool) {
        let _ = connected;
    }

    /// Opens the volume for one queue on this thread's reactor.
    ///
    /// # Errors
    /// Fails if the volume cannot be served at present.
    fn open(&self) -> impl Future<Output = Result<Self::Volume, OpenError>>;
}
