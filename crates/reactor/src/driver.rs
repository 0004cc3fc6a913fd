//! What a reactor waits in, and how other threads end that wait.

use std::sync::Arc;
use std::time::Duration;

use crate::Instant;

/// What a reactor waits in: the source of completions.
pub trait Driver {
    /// Hands over what was queued and completes what has ended. True if anything completed.
    fn poll(&self) -> bool;

    /// As [`Driver::poll`], but nothing is ready to run: unless this completes something, [`Driver::sleep`] follows at
    /// once, which may be the better moment to hand over what was queued.
    fn poll_before_sleep(&self) -> bool {
        self.poll()
    }

    /// Hands over what was queued and sleeps until something may have completed, [`WakeHandle::wake`] is called, or
    /// `until` (never, if `None`). Completes what has ended.
    fn sleep(&self, until: Option<Instant>);

    /// How long a call takes to what lives on the same reactor under this key, or, if not `there`, its answer back: no time at all, but
    /// where one reactor stands for several.
    fn message_delay(&self, key: u64, there: bool) -> Duration {
        let _ = (key, there);
        Duration::ZERO
    }

    /// What another thread calls to end [`Driver::sleep`].
    fn wake_handle(&self) -> Arc<dyn WakeHandle>;
}

/// Ends a reactor's sleep, from any thread.
pub trait WakeHandle: Send + Sync {
    /// Ends the sleep now, or the next one at once.
    fn wake(&self);
}
