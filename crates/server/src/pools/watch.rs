//! Periodic checks of the open pools: space usage, removed drives, scheduled scrubs.
//!
//! Invariant: reaching a threshold is reported once, in the log and in the pool's event log, and
//! again only after the usage was at least [`HYSTERESIS`] below the threshold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use engine::EventKind;

use super::{OpenPool, Pools};
use crate::error::Result;
use api::types::PoolSpace;

/// Interval of the checks.
const INTERVAL: Duration = Duration::from_secs(5);
/// Percentage points below a threshold at which the threshold counts as left.
const HYSTERESIS: u8 = 2;

/// The highest threshold in percent that was reported for a pool: 0 for none, 100 for a full pool.
#[derive(Debug, Default)]
pub(crate) struct SpaceLevel(AtomicU8);

/// The level before the first check.
const UNKNOWN: u8 = u8::MAX;

impl SpaceLevel {
    pub(super) fn unknown() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }
}

impl Pools {
    /// Checks every open pool periodically, without end.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            for name in self.open_names() {
                if let Err(error) = self.check_pool(&name).await {
                    tracing::debug!(pool = name, %error, "the periodic check of the pool failed");
                }
            }
        }
    }

    async fn check_pool(&self, name: &str) -> Result<()> {
        let open = self.get(name)?;
        // This also releases drives that were removed from the pool.
        let Some(space) = self.status(name).await?.space else { return Ok(()) };
        self.scrub_if_due(name).await?;
        let mut before = open.space_level.0.load(Ordering::Relaxed);
        if before == UNKNOWN {
            before = last_reported(&open).await?;
        }
        let now = level_of(&self.warn_at, percent_used(&space), before);
        open.space_level.0.store(now, Ordering::Relaxed);
        if now == before {
            return Ok(());
        }
        let free = api::Size(space.free);
        let (kind, amount) = match now {
            100 => (EventKind::Full, 0),
            _ if now < before => (EventKind::SpaceAvailable, 0),
            threshold => (EventKind::SpaceLow, u64::from(threshold)),
        };
        match kind {
            EventKind::Full => {
                tracing::error!(pool = name, "the pool is full: writes that need new space fail")
            }
            EventKind::SpaceLow => {
                tracing::warn!(pool = name, %free, threshold_percent = amount, "the pool is low on free space")
            }
            _ => tracing::info!(pool = name, %free, "the pool has free space again"),
        }
        open.call(move |pool| async move { pool.emit_event(kind, amount, "").await }).await
    }
}

/// Returns the level that the pool's event log reported last.
async fn last_reported(open: &OpenPool) -> Result<u8> {
    let events = open.call(|pool| async move { pool.events(0, usize::MAX).await }).await?;
    let level = events.iter().rev().find_map(|(_, event)| match event.kind {
        EventKind::Full => Some(100),
        EventKind::SpaceLow => Some(u8::try_from(event.amount).unwrap_or(0)),
        EventKind::SpaceAvailable => Some(0),
        _ => None,
    });
    Ok(level.unwrap_or(0))
}

/// Returns the space that is used, or reserved for thick volumes, in percent of the capacity.
pub(super) fn percent_used(space: &PoolSpace) -> u8 {
    let used = space.capacity.saturating_sub(space.free);
    let percent = (u128::from(used) * 100).checked_div(u128::from(space.capacity)).unwrap_or(100);
    u8::try_from(percent).unwrap_or(100)
}

/// Returns the highest threshold that is reached, or not yet left since level `before`.
fn level_of(thresholds: &[u8], percent: u8, before: u8) -> u8 {
    let all = thresholds.iter().copied().chain([100]);
    let is_reached =
        |threshold: &u8| percent >= *threshold || *threshold <= before && percent + HYSTERESIS >= *threshold;
    all.filter(is_reached).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_reported_once_and_left_with_hysteresis() {
        let thresholds = [80, 90];
        let mut before = 0;
        let mut reported = Vec::new();
        for percent in [10, 79, 80, 85, 79, 80, 78, 77, 80, 91, 100, 99, 97, 89, 87, 50] {
            let now = level_of(&thresholds, percent, before);
            if now != before {
                reported.push((percent, now));
            }
            before = now;
        }
        assert_eq!(
            reported,
            [(80, 80), (77, 0), (80, 80), (91, 90), (100, 100), (97, 90), (87, 80), (50, 0)]
        );
        assert_eq!(level_of(&[], 99, 0), 0);
    }

    #[test]
    fn a_pool_without_capacity_is_full() {
        let space = |capacity, free| PoolSpace {
            raw: 0,
            capacity,
            free,
            system_reserve: 0,
            reserved: 0,
            stored: 0,
            provisioned: 0,
            volumes: 0,
        };
        assert_eq!(
            [space(0, 0), space(1000, 0), space(1000, 1), space(1000, 999)].map(|space| percent_used(&space)),
            [100, 100, 99, 0]
        );
    }
}
