//! Looks at the pools in service from time to time, though nobody asks: how full they are, whether drives have left them, and
//! whether it is time to scrub.
//!
//! Always true: each threshold is told of once when it is passed, in the log and in the pool's event log, and again only after the pool
//! was clearly below it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use engine::EventKind;

use super::{OpenPool, Pools};
use crate::error::Result;
use api::types::PoolSpace;

/// How often pools are looked at.
const EVERY: Duration = Duration::from_secs(5);
/// Percent below a threshold from which it counts as not passed any more.
const CLEARLY: u8 = 2;

/// The threshold that a pool is known to have passed: 0 for none, 100 if it is full.
#[derive(Debug, Default)]
pub(crate) struct Passed(AtomicU8);

/// Nobody has looked yet.
const UNKNOWN: u8 = u8::MAX;

impl Passed {
    pub(super) fn unknown() -> Self {
        Self(AtomicU8::new(UNKNOWN))
    }
}

impl Pools {
    /// Looks at every pool in service again and again.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(EVERY).await;
            for name in self.open_names() {
                if let Err(error) = self.look(&name).await {
                    tracing::debug!(pool = name, %error, "a pool could not be looked at");
                }
            }
        }
    }

    async fn look(&self, name: &str) -> Result<()> {
        let open = self.get(name)?;
        // Lets go of drives that have left it.
        let Some(space) = self.status(name).await?.space else { return Ok(()) };
        self.scrub_if_due(name).await?;
        let mut before = open.passed.0.load(Ordering::Relaxed);
        if before == UNKNOWN {
            before = last_told(&open).await?;
        }
        let now = passed(&self.warn_at, percent_taken(&space), before);
        open.passed.0.store(now, Ordering::Relaxed);
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
                tracing::error!(pool = name, "the pool is full: writes that need more room are refused")
            }
            EventKind::SpaceLow => tracing::warn!(pool = name, %free, percent = amount, "the pool fills up"),
            _ => tracing::info!(pool = name, %free, "the pool has room again"),
        }
        open.call(move |pool| async move { pool.emit_event(kind, amount, "").await }).await
    }
}

/// What the pool's event log says was passed last.
async fn last_told(open: &OpenPool) -> Result<u8> {
    let events = open.call(|pool| async move { pool.events(0, usize::MAX).await }).await?;
    let told = events.iter().rev().find_map(|(_, event)| match event.kind {
        EventKind::Full => Some(100),
        EventKind::SpaceLow => Some(u8::try_from(event.amount).unwrap_or(0)),
        EventKind::SpaceAvailable => Some(0),
        _ => None,
    });
    Ok(told.unwrap_or(0))
}

/// How much of the room is taken or kept for thick volumes, in percent.
pub(super) fn percent_taken(space: &PoolSpace) -> u8 {
    let taken = space.capacity.saturating_sub(space.free);
    let percent = (u128::from(taken) * 100).checked_div(u128::from(space.capacity)).unwrap_or(100);
    u8::try_from(percent).unwrap_or(100)
}

/// The highest threshold that is passed, `before` being the one that was.
fn passed(thresholds: &[u8], percent: u8, before: u8) -> u8 {
    let all = thresholds.iter().copied().chain([100]);
    let holds =
        |threshold: &u8| percent >= *threshold || *threshold <= before && percent + CLEARLY >= *threshold;
    all.filter(holds).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_passed_once_and_left_clearly() {
        let thresholds = [80, 90];
        let mut before = 0;
        let mut told = Vec::new();
        for percent in [10, 79, 80, 85, 79, 80, 78, 77, 80, 91, 100, 99, 97, 89, 87, 50] {
            let now = passed(&thresholds, percent, before);
            if now != before {
                told.push((percent, now));
            }
            before = now;
        }
        assert_eq!(told, [(80, 80), (77, 0), (80, 80), (91, 90), (100, 100), (97, 90), (87, 80), (50, 0)]);
        assert_eq!(passed(&[], 99, 0), 0);
    }

    #[test]
    fn a_pool_without_any_room_is_full() {
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
            [space(0, 0), space(1000, 0), space(1000, 1), space(1000, 999)]
                .map(|space| percent_taken(&space)),
            [100, 100, 99, 0]
        );
    }
}
