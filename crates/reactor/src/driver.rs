//! The event source in which a reactor polls and sleeps, and the handle that wakes it.

use std::sync::Arc;
use std::time::Duration;

use crate::Instant;

/// The event source of a reactor. Submits operations and reports their completions.
pub trait Driver {
    /// Submits queued operations and reaps completions. True if anything completed.
    fn poll(&self) -> bool;

    /// Like [`Driver::poll`], when no task is ready: unless this completes something,
    /// [`Driver::sleep`] follows at once and may be the better moment to submit.
    fn poll_before_sleep(&self) -> bool {
        self.poll()
    }

    /// Submits queued operations, then sleeps until a completion, [`WakeHandle::wake`] or `until`
    /// (for ever if `None`). Reaps completions.
    fn sleep(&self, until: Option<Instant>);

    /// Returns the simulated delay of a call to the object registered under `key` on the same
    /// reactor, or of its reply if not `there`. Zero except in the simulator, where one reactor
    /// stands for several.
    fn message_delay(&self, key: u64, there: bool) -> Duration {
        let _ = (key, there);
        Duration::ZERO
    }

    /// Returns the handle with which other threads end [`Driver::sleep`].
    fn wake_handle(&self) -> Arc<dyn WakeHandle>;
}

/// Wakes a sleeping reactor, from any thread.
pub trait WakeHandle: Send + Sync {
    /// Ends the current sleep, or makes the next one return at once.
    fn wake(&self);
}
