//! Pauses of a busy volume's writes during a snapshot: the longest time without a completed write.

use std::time::{Duration, Instant};

use engine::Pool;
use reactor::Reactor;
use serde::Serialize;

use super::load::Writers;
use super::{SnapshotOptions, filled};
use crate::sample::Recorder;

/// Writes in flight.
const DEPTH: u32 = 16;
/// Minimum number of writes between two snapshots.
const BETWEEN: u64 = 2000;

/// Result of the measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Pause {
    /// Writes of 4 KiB in flight.
    pub queue_depth: u32,
    /// Completed writes per second, including snapshots.
    pub writes_per_s: f64,
    /// Median over all snapshots of the longest time without a completed write, in microseconds.
    pub with_p50_us: f64,
    /// 99th percentile of the same, in microseconds.
    pub with_p99_us: f64,
    /// Maximum of the same, in microseconds.
    pub with_max_us: f64,
    /// Median of the same over equally long intervals without a snapshot, in microseconds.
    pub without_p50_us: f64,
    /// 99th percentile without a snapshot, in microseconds.
    pub without_p99_us: f64,
    /// Maximum without a snapshot, in microseconds.
    pub without_max_us: f64,
}

pub(super) async fn measure(pool: &Pool, options: &SnapshotOptions) -> engine::Result<Pause> {
    let volume = filled(pool, "volume", options).await?;
    let writers = Writers::start(&volume, DEPTH);
    let (mut with, mut without) = (Recorder::new(), Recorder::new());
    let start = Instant::now();
    for number in 0..options.snapshots {
        writers.ended(BETWEEN).await;
        let began = Instant::now();
        writers.begin_window();
        pool.snapshot_volume(&format!("volume@{number}"), 0).await?;
        // The first completion after the snapshot ends the pause.
        writers.ended(1).await;
        with.record(nanos(writers.longest_pause()));
        let length = began.elapsed();

        writers.ended(BETWEEN).await;
        let until = Instant::now() + length;
        writers.begin_window();
        while Instant::now() < until {
            Reactor::current().yield_now().await;
        }
        writers.ended(1).await;
        without.record(nanos(writers.longest_pause()));
    }
    let seconds = start.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let writes_per_s = writers.count() as f64 / seconds;
    writers.stop().await?;
    Ok(Pause {
        queue_depth: DEPTH,
        writes_per_s,
        with_p50_us: with.percentile_us(0.5),
        with_p99_us: with.percentile_us(0.99),
        with_max_us: with.percentile_us(1.0),
        without_p50_us: without.percentile_us(0.5),
        without_p99_us: without.percentile_us(0.99),
        without_max_us: without.percentile_us(1.0),
    })
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
