//! Scrubbing, as whoever has the pool asks for it.

use super::Pool;
use crate::error::Result;
use crate::repair::RepairLimits;

impl Pool {
    /// Begins to read everything that was ever written and still lies there, and to compare it; what is damaged is written anew. In
    /// the background, also after a restart. False if that is under way already.
    ///
    /// # Errors
    /// When the pool has failed or was closed.
    pub async fn start_scrub(&self) -> Result<bool> {
        self.inner.control.call(|control| async move { control.start_scrub().await }).await?
    }

    /// As [`Pool::start_scrub`], if it is time for it: see [`Pool::set_scrub_every`].
    ///
    /// # Errors
    /// When the pool has failed or was closed.
    pub async fn start_scrub_if_due(&self) -> Result<bool> {
        self.inner.control.call(|control| async move { control.start_scrub_if_due().await }).await?
    }

    /// Calls off the scrub that is under way. False if there is none.
    ///
    /// # Errors
    /// When the pool has failed or was closed.
    pub async fn cancel_scrub(&self) -> Result<bool> {
        self.inner.control.call(|control| async move { control.cancel_scrub().await }).await?
    }

    /// Sets how many seconds after the beginning of a scrub the next one is due; 0 for only when asked. It is kept in the pool.
    ///
    /// # Errors
    /// When the pool has failed or was closed.
    pub async fn set_scrub_every(&self, seconds: u64) -> Result<()> {
        self.inner.control.call(move |control| async move { control.set_scrub_every(seconds).await }).await?
    }

    /// How fast scrubbing may go: bytes are those that it reads.
    pub fn scrub_limits(&self) -> RepairLimits {
        self.inner.scrub.limits.limits()
    }

    /// Sets how fast scrubbing may go, until the pool is closed.
    ///
    /// # Errors
    /// When the pool was closed.
    pub async fn set_scrub_limits(&self, limits: RepairLimits) -> Result<()> {
        self.inner.scrub.limits.set(limits);
        Ok(self.inner.control.call(|control| async move { control.notify_scrub_changed().await }).await?)
    }

    /// Waits until no scrub is under way, or it is told to pause. Damage that it found may wait for repair still.
    ///
    /// # Errors
    /// When the pool was closed.
    pub async fn scrub_settled(&self) -> Result<()> {
        Ok(self.inner.control.call(|control| async move { control.scrub_idle().await }).await?)
    }
}
