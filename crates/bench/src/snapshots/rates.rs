//! Rates of snapshot creation and deletion.

use std::time::{Duration, Instant};

use engine::Pool;
use reactor::Reactor;
use serde::Serialize;

use super::{SnapshotOptions, change, draw, filled};
use crate::sample::Recorder;

/// Interval at which the progress of deletions is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Result of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Rates {
    /// Number of snapshots of one volume.
    pub snapshots: u32,
    /// Blocks overwritten between two snapshots.
    pub changed_blocks: u32,
    /// Snapshots created per second, one after the other.
    pub taken_per_s: f64,
    /// Median creation time in microseconds.
    pub take_p50_us: f64,
    /// 99th percentile of the creation time, in microseconds.
    pub take_p99_us: f64,
    /// Acknowledged deletions per second, one after the other: the snapshot is no longer visible.
    pub deleted_per_s: f64,
    /// Completed deletions per second, with their space freed, from the first deletion to the end
    /// of the last.
    pub gone_per_s: f64,
}

pub(super) async fn measure(pool: &Pool, options: &SnapshotOptions) -> engine::Result<Rates> {
    let volume = filled(pool, "volume", options).await?;
    let mut draw = draw(&volume);
    let name = |number: u32| format!("volume@{number}");
    let mut taking = Recorder::new();
    let mut took = Duration::ZERO;
    for number in 0..options.snapshots {
        change(&volume, &mut draw, options.changes).await?;
        let start = Instant::now();
        pool.snapshot_volume(&name(number), 0).await?;
        let time = start.elapsed();
        took += time;
        taking.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
    let start = Instant::now();
    for number in 0..options.snapshots {
        pool.delete_volume(&name(number)).await?;
    }
    let answered = start.elapsed();
    while pool.volumes().await?.iter().any(|info| info.snapshot) {
        Reactor::current().sleep(POLL_INTERVAL).await;
    }
    let gone = start.elapsed();
    let per_second = |time: Duration| f64::from(options.snapshots) / time.as_secs_f64().max(1e-9);
    Ok(Rates {
        snapshots: options.snapshots,
        changed_blocks: options.changes,
        taken_per_s: per_second(took),
        take_p50_us: taking.percentile_us(0.5),
        take_p99_us: taking.percentile_us(0.99),
        deleted_per_s: per_second(answered),
        gone_per_s: per_second(gone),
    })
}
