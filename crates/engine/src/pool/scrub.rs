//! The scrub commands of a pool.

use futures_util::future::LocalBoxFuture;

use super::Pool;
use crate::error::Result;
use crate::repair::RepairLimits;

impl Pool {
    /// Starts a scrub: reads and verifies all stored data in the background and repairs damaged
    /// blocks. A scrub continues after a restart. Returns false if a scrub is already running.
    ///
    /// # Errors
    /// When the pool has failed or was closed.
    pub fn start_scrub(&self) -> LocalBoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.inner.control.call(|control| async move { control.start_scrub().await }).await?
        })
    }

    /// Starts a scrub if one is due, as set by [`Pool::set_scrub_every`]. Returns false if none was
    /// started.
    ///
    /// # Errors
    /// When the pool has failed or was closed.
    pub fn start_scrub_if_due(&self) -> LocalBoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.inner.control.call(|control| async move { control.start_scrub_if_due().await }).await?
        })
    }

    /// Cancels the running scrub. Returns false if none is running.
    ///
    /// # Errors
    /// When the pool has failed or was closed.
    pub fn cancel_scrub(&self) -> LocalBoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            self.inner.control.call(|control| async move { control.cancel_scrub().await }).await?
        })
    }

    /// Sets the interval between the starts of scheduled scrubs, in seconds; 0 for no scheduled
    /// scrubs. The setting is stored in the pool.
    ///
    /// # Errors
    /// When the pool has failed or was closed.
    pub fn set_scrub_every(&self, seconds: u64) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.inner
                .control
                .call(move |control| async move { control.set_scrub_every(seconds).await })
                .await?
        })
    }

    /// Returns the speed limits of scrubs. Bytes are bytes read.
    pub fn scrub_limits(&self) -> RepairLimits {
        self.inner.scrub.limits.limits()
    }

    /// Sets the speed limits of scrubs, until the pool is closed.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn set_scrub_limits(&self, limits: RepairLimits) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.inner.scrub.limits.set(limits);
            Ok(self.inner.control.call(|control| async move { control.notify_scrub_changed().await }).await?)
        })
    }

    /// Waits until no scrub is running or the scrub is paused. Repairs of damage it found may be
    /// pending.
    ///
    /// # Errors
    /// When the pool was closed.
    pub fn scrub_settled(&self) -> LocalBoxFuture<'_, Result<()>> {
        Box::pin(async move {
            Ok(self.inner.control.call(|control| async move { control.scrub_idle().await }).await?)
        })
    }
}
