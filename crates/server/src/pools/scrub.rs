//! Scrubs: start, schedule, settings and status.

use engine::{RepairLimits, ScrubStatus, ScrubTally};

use super::Pools;
use crate::error::Result;
use api::types;

impl Pools {
    /// Starts a scrub. Returns false if one is running already.
    ///
    /// # Errors
    /// When the pool is not open, or refuses writes.
    pub(crate) async fn start_scrub(&self, name: &str) -> Result<bool> {
        let started = self.get(name)?.call(|pool| async move { pool.start_scrub().await }).await?;
        tracing::info!(pool = name, started, "scrub started on request");
        Ok(started)
    }

    /// Starts a scrub if the interval since the last one has passed.
    pub(super) async fn scrub_if_due(&self, name: &str) -> Result<()> {
        if self.get(name)?.call(|pool| async move { pool.start_scrub_if_due().await }).await? {
            tracing::info!(pool = name, "scheduled scrub started");
        }
        Ok(())
    }

    /// Cancels the scrub of a pool. Returns false if none is running.
    ///
    /// # Errors
    /// When the pool is not open, or refuses writes.
    pub(crate) async fn cancel_scrub(&self, name: &str) -> Result<bool> {
        let cancelled = self.get(name)?.call(|pool| async move { pool.cancel_scrub().await }).await?;
        tracing::info!(pool = name, cancelled, "scrub cancelled on request");
        Ok(cancelled)
    }

    /// Pauses, resumes or rate-limits scrubbing, or sets its interval.
    ///
    /// # Errors
    /// When the pool is not open, or refuses writes.
    pub(crate) async fn change_scrub(&self, name: &str, request: types::ChangeScrub) -> Result<()> {
        let change = move |pool: engine::Pool| async move {
            if let Some(every) = request.every {
                pool.set_scrub_every(every).await?;
            }
            let current = pool.scrub_limits();
            let limits = RepairLimits {
                paused: request.paused.unwrap_or(current.paused),
                bytes_per_second: request.rate_limit.unwrap_or(current.bytes_per_second),
            };
            pool.set_scrub_limits(limits).await
        };
        self.get(name)?.call(change).await?;
        tracing::info!(pool = name, ?request, "scrub settings changed on request");
        Ok(())
    }
}

/// Returns the state of scrubbing for the API.
pub(super) fn scrub_of(status: &ScrubStatus, limits: RepairLimits) -> types::Scrub {
    let result = |tally: &ScrubTally| types::ScrubResult {
        started: tally.began,
        finished: Some(tally.ended).filter(|ended| *ended > 0),
        bytes: tally.bytes,
        damaged: tally.damaged,
        lost: tally.lost,
    };
    let all = status.current.bytes + status.bytes_left;
    types::Scrub {
        current: status.running.then(|| result(&status.current)),
        last: (status.last.ended > 0).then(|| result(&status.last)),
        remaining: status.bytes_left,
        percent: if status.running {
            (status.current.bytes * 100).checked_div(all).unwrap_or(0).min(99)
        } else {
            100
        },
        bytes_per_second: status.bytes_per_second,
        seconds_left: status.seconds_left(),
        unrepaired: status.unhealed,
        paused: limits.paused,
        rate_limit: limits.bytes_per_second,
        every: status.every,
    }
}
