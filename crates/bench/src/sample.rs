//! One measured line: what ran, how fast, how long each operation took.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::result::Side;

/// A line of a benchmark's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// What was done.
    pub op: String,
    /// The scheme it was done on, k+m.
    pub scheme: String,
    /// Bytes of one operation.
    pub block_bytes: u64,
    /// Operations kept under way.
    pub queue_depth: u32,
    /// Operations a second.
    pub iops: f64,
    /// User bytes a second.
    pub bytes_per_s: f64,
    /// Mean time of an operation, in microseconds.
    pub mean_us: f64,
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Cores that did the work.
    pub cores: u32,
    /// Operations whose result was wrong; anything but 0 makes the line worthless.
    pub wrong: u64,
}

/// Times of operations, in nanoseconds, and what became of them.
pub(crate) struct Recorder {
    histogram: Histogram<u64>,
    sum: u64,
    pub(crate) wrong: u64,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        // Three digits from a nanosecond to a minute: bounds that the crate always takes.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3);
        Self { histogram: histogram.unwrap_or_else(|error| panic!("{error}")), sum: 0, wrong: 0 }
    }

    pub(crate) fn record(&mut self, nanos: u64) {
        self.histogram.saturating_record(nanos.max(1));
        self.sum += nanos;
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Times and how many operations took them, in a form that is kept and merged.
    pub(crate) fn counts(&self) -> crate::Histogram {
        let recorded = self.histogram.iter_recorded();
        recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// Takes in what another one has recorded.
    pub(crate) fn add(&mut self, other: &Self) {
        let added = self.histogram.add(&other.histogram);
        assert!(added.is_ok(), "recorders have the same bounds");
        self.sum += other.sum;
        self.wrong += other.wrong;
    }

    /// The time that this share of the operations keeps, in microseconds.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn percentile_us(&self, share: f64) -> f64 {
        self.histogram.value_at_quantile(share) as f64 / 1000.0
    }

    /// The operations as one direction of a job.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn side(&self, bytes: u64, elapsed_s: f64) -> Side {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        let percentile = |share: f64| micros(self.histogram.value_at_quantile(share));
        Side {
            iops: self.count() as f64 / elapsed_s,
            bytes_per_s: bytes as f64 / elapsed_s,
            mean_us: micros(self.sum) / self.count().max(1) as f64,
            p50_us: percentile(0.5),
            p99_us: percentile(0.99),
            p9995_us: percentile(0.9995),
            p99999_us: percentile(0.99999),
        }
    }

    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn sample(&self, what: &What, elapsed_s: f64) -> Sample {
        let count = self.count() as f64;
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        Sample {
            op: what.op.into(),
            scheme: what.scheme.into(),
            block_bytes: what.block_bytes,
            queue_depth: what.queue_depth,
            iops: count / elapsed_s,
            bytes_per_s: count * what.block_bytes as f64 / elapsed_s,
            mean_us: self.sum as f64 / count.max(1.0) / 1000.0,
            p50_us: micros(self.histogram.value_at_quantile(0.5)),
            p99_us: micros(self.histogram.value_at_quantile(0.99)),
            cores: 1,
            wrong: self.wrong,
        }
    }
}

/// What a line is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct What {
    pub(crate) op: &'static str,
    pub(crate) scheme: &'static str,
    pub(crate) block_bytes: u64,
    pub(crate) queue_depth: u32,
}
