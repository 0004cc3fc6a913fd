//! What a reactor waits in, and how other threads end that wait.

use std::sync::Arc;

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

    /// Hands over what was queued and sleeps until something may have completed, [`Rouse::rouse`] is called, or
    /// `until` (never, if `None`). Completes what has ended.
    fn sleep(&self, until: Option<Instant>);

    /// What another thread calls to end [`Driver::sleep`].
    fn rouser(&self) -> Arc<dyn Rouse>;
}

/// Ends a reactor's sleep, from any thread.
pub trait Rouse: Send + Sync {
    /// Ends the sleep now, or the next one at once.
    fn rouse(&self);
}
