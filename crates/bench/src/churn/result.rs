//! The result of `bench churn`.

use std::time::Duration;

use engine::{FillHistogram, PoolStatus};
use serde::Serialize;

use crate::draw::Distribution;
use crate::sample::Recorder;

/// Blocks written to the drives, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Amplification {
    /// Blocks written by users. In the result of a window, all other fields are per user block.
    #[serde(skip)]
    pub user_blocks: f64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Blocks moved by the cleaner.
    pub moved: f64,
    /// Nodes of the map, and tables.
    pub map: f64,
    /// Headers of records.
    pub headers: f64,
    /// Padding of records.
    pub padding: f64,
    /// Parity and mirrors.
    pub parity: f64,
    /// Catalogue, repaired and zeroed blocks.
    pub other: f64,
}

impl Amplification {
    /// Returns the counters of a pool since it was opened.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn counted(status: &PoolStatus) -> Self {
        let mut sum = Self::default();
        for shard in &status.shards {
            let counters = shard.log;
            sum.checkpoints += shard.checkpoints;
            sum.user_blocks += counters.user_blocks as f64;
            sum.moved += counters.moved_blocks as f64;
            sum.map += counters.map_blocks as f64;
            sum.headers += counters.header_blocks as f64;
            sum.padding += counters.padding_blocks as f64;
            sum.parity += counters.parity_blocks as f64;
            sum.other += counters.freeing_blocks as f64;
        }
        sum
    }

    /// Returns the difference to earlier counters, per user block.
    pub(super) fn since(&self, before: &Self) -> Self {
        let user_blocks = self.user_blocks - before.user_blocks;
        let each = |now: f64, before: f64| (now - before) / user_blocks.max(1.0);
        Self {
            user_blocks,
            checkpoints: self.checkpoints - before.checkpoints,
            moved: each(self.moved, before.moved),
            map: each(self.map, before.map),
            headers: each(self.headers, before.headers),
            padding: each(self.padding, before.padding),
            parity: each(self.parity, before.parity),
            other: each(self.other, before.other),
        }
    }

    /// Returns the blocks written to the drives per user block.
    pub fn total(&self) -> f64 {
        self.cleaning() + self.map + self.headers + self.padding + self.parity + self.other
    }

    /// Returns user blocks and cleaned blocks per user block: the write amplification of analytic
    /// models.
    pub fn cleaning(&self) -> f64 {
        1.0 + self.moved
    }

    fn add(&mut self, other: &Self, share: f64) {
        self.user_blocks += other.user_blocks;
        self.checkpoints += other.checkpoints;
        self.moved += other.moved * share;
        self.map += other.map * share;
        self.headers += other.headers * share;
        self.padding += other.padding * share;
        self.parity += other.parity * share;
        self.other += other.other * share;
    }
}

/// One window of the load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChurnWindow {
    /// Number of overwrites of the whole volume by the end of the window.
    pub written: f64,
    /// Length in seconds.
    pub seconds: f64,
    /// Writes per second.
    pub iops: f64,
    /// Median write latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the write latency, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile of the write latency, in microseconds.
    pub p999_us: f64,
    /// 99.99th percentile of the write latency, in microseconds.
    pub p9999_us: f64,
    /// Longest time without a completed write, in milliseconds.
    pub longest_pause_ms: f64,
    /// Blocks written to the drives per user block.
    pub amplification: Amplification,
    /// Latencies, for merging.
    #[serde(skip)]
    times: crate::Histogram,
}

impl ChurnWindow {
    pub(super) fn new(
        written: f64,
        seconds: f64,
        recorder: &Recorder,
        pause: Duration,
        amplification: Amplification,
    ) -> Self {
        Self::of(written, seconds, recorder.counts(), pause.as_secs_f64() * 1000.0, amplification)
    }

    #[allow(clippy::cast_precision_loss)]
    fn of(
        written: f64,
        seconds: f64,
        times: crate::Histogram,
        longest_pause_ms: f64,
        amplification: Amplification,
    ) -> Self {
        let micros = |share| times.quantile(share).unwrap_or(0) as f64 / 1000.0;
        Self {
            written,
            seconds,
            iops: times.count() as f64 / seconds,
            p50_us: micros(0.5),
            p99_us: micros(0.99),
            p999_us: micros(0.999),
            p9999_us: micros(0.9999),
            longest_pause_ms,
            amplification,
            times,
        }
    }

    /// Merges several windows: percentiles are those of all their writes.
    pub(super) fn merged(windows: &[Self]) -> Option<Self> {
        let last = windows.last()?;
        let blocks: f64 = windows.iter().map(|window| window.amplification.user_blocks).sum();
        let mut times = crate::Histogram::default();
        let mut amplification = Amplification::default();
        for window in windows {
            times.merge(&window.times);
            amplification.add(&window.amplification, window.amplification.user_blocks / blocks.max(1.0));
        }
        let seconds = windows.iter().map(|window| window.seconds).sum();
        let pause = windows.iter().map(|window| window.longest_pause_ms).fold(0.0, f64::max);
        Some(Self::of(last.written, seconds, times, pause, amplification))
    }
}

/// The result of the benchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Churn {
    /// Protection scheme.
    pub scheme: String,
    /// Distribution of the overwrites.
    pub distribution: Distribution,
    /// Size of the volume as a share of the pool's capacity.
    pub fill: f64,
    /// Size of the volume as a share of the drives' data capacity, which includes the pool's
    /// reserves.
    pub raw_fill: f64,
    /// Bytes per drive.
    pub drive_bytes: u64,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Writes in flight.
    pub queue_depth: u32,
    /// The reference window on the new pool, before any cleaning.
    pub fresh: ChurnWindow,
    /// The last overwrite of the whole volume.
    pub steady: ChurnWindow,
    /// True if the write amplification of the last two overwrites was nearly the same.
    pub settled: bool,
    /// All windows, in order.
    pub windows: Vec<ChurnWindow>,
    /// Write amplification of an ideal greedy cleaner at this fill, under uniform overwrites.
    pub greedy: f64,
    /// The same at the share of the drives' data capacity.
    pub greedy_raw: f64,
    /// Segments by share of live blocks at the end.
    pub segments: FillHistogram,
    /// Blocks with wrong contents. The result is invalid unless this is 0.
    pub wrong: u64,
}
