//! What a device serves, and where: the interface to whoever exports a volume.
//!
//! Must not know the protocol.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use reactor::{Platform, Remote};

use crate::{OpenError, Volume};

/// A volume as one vhost-user device serves it, on any number of reactors. Used from several threads.
pub trait Disk: Send + Sync + 'static {
    /// The volume as one reactor uses it.
    type Volume: Volume + 'static;

    /// What it is called in logs.
    fn name(&self) -> String;

    /// What guests are told that it is called: at most 20 bytes of it.
    fn serial(&self) -> String;

    /// Size in bytes, now.
    fn size(&self) -> u64;

    /// Bytes of a sector, as [`Volume::sector`]: guests can have 512 to 4096.
    fn sector(&self) -> u32;

    /// True if guests may not write.
    fn read_only(&self) -> bool;

    /// The reactors that its queues are dealt out to, in turn.
    fn reactors(&self) -> &[Remote];

    /// How many queues a guest may use: from 1 to [`super::QUEUES_MAX`].
    fn queues(&self) -> u16;

    /// How long a queue without requests is polled before it waits for a notification.
    fn poll(&self) -> Duration;

    /// How long requests gather at most where they keep a queue busy for a part of the time only; no longer than it is polled.
    fn gather(&self) -> Duration;

    /// The platform of the reactor that runs on this thread, which is one of [`Disk::reactors`].
    fn platform(&self) -> Rc<Platform>;

    /// A front end has come, or is gone with everything that it began.
    fn note_front_end(&self, connected: bool) {
        let _ = connected;
    }

    /// The volume for the reactor that runs on this thread, for one queue.
    ///
    /// # Errors
    /// When it cannot be served at present.
    fn open(&self) -> impl Future<Output = Result<Self::Volume, OpenError>>;
}
