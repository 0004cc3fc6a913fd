//! What `bench churn` measured.

use std::time::Duration;

use engine::{FillHistogram, PoolStatus};
use serde::Serialize;

use super::Distribution;
use crate::sample::Recorder;

/// Blocks written to the drives, by what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Amplification {
    /// Blocks that users wrote; everything else is counted for each of these once a window is over.
    #[serde(skip)]
    pub user_blocks: f64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Blocks that the cleaner moved.
    pub moved: f64,
    /// Nodes of the map and tables.
    pub map: f64,
    /// Headers of records.
    pub headers: f64,
    /// Cells of records that nothing was left for.
    pub padding: f64,
    /// Parity and mirrors.
    pub parity: f64,
    /// The catalogue, and what was healed or zeroed.
    pub other: f64,
}

impl Amplification {
    /// What a pool has counted since it was opened.
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

    /// What was written since, for each user block.
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

    /// Blocks on the drives for each that users wrote.
    pub fn total(&self) -> f64 {
        self.cleaning() + self.map + self.headers + self.padding + self.parity + self.other
    }

    /// What users wrote and what the cleaner moved, for each block that users wrote: what analyses of cleaners give.
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

/// A stretch of the load.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Window {
    /// How often the volume's size had been written over by its end.
    pub written: f64,
    /// How long it took.
    pub seconds: f64,
    /// Writes a second.
    pub iops: f64,
    /// Median of their times, in microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// 99.99th percentile.
    pub p9999_us: f64,
    /// The longest time in which no write ended, in milliseconds.
    pub longest_pause_ms: f64,
    /// What was written to the drives meanwhile, for each block that users wrote.
    pub amplification: Amplification,
    /// The times, to be merged.
    #[serde(skip)]
    times: crate::Histogram,
}

impl Window {
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

    /// Several as one: percentiles of all their writes.
    pub(super) fn together(windows: &[Self]) -> Option<Self> {
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

/// A pool, churned.
#[derive(Clone, Debug, Serialize)]
pub struct Churn {
    /// Its scheme.
    pub scheme: String,
    /// Which blocks were overwritten.
    pub distribution: Distribution,
    /// Share of what the pool takes that the volume had.
    pub fill: f64,
    /// Share of what the drives hold beside parity that it had: the pool keeps the difference for itself.
    pub raw_fill: f64,
    /// Bytes of each drive.
    pub drive_bytes: u64,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Writes kept under way.
    pub queue_depth: u32,
    /// The same load before there was anything to clean.
    pub fresh: Window,
    /// The last time that the volume was overwritten.
    pub steady: Window,
    /// True if the last overwriting cost what the one before did.
    pub settled: bool,
    /// Every window, in order.
    pub windows: Vec<Window>,
    /// Blocks that users wrote and that were moved, for each of the first, as an ideal greedy cleaner would have it at this fill if all blocks were
    /// overwritten alike and nothing else took space.
    pub greedy: f64,
    /// The same at the share of all that the drives hold.
    pub greedy_raw: f64,
    /// Segments by how much of them lived at the end.
    pub segments: FillHistogram,
    /// Blocks that did not hold what was written last; anything but 0 makes the rest worthless.
    pub wrong: u64,
}
