//! One result line of a micro-benchmark: rate and latencies.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::result::DirectionFigures;

/// A result line of a benchmark.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Name of the operation.
    pub op: String,
    /// Protection scheme, k+m.
    pub scheme: String,
    /// Bytes of one operation.
    pub block_bytes: u64,
    /// Operations in flight.
    pub queue_depth: u32,
    /// Operations a second.
    pub iops: f64,
    /// User bytes a second.
    pub bytes_per_s: f64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: f64,
    /// Cores that ran the operations.
    pub cores: u32,
    /// Operations with a wrong result. The line is invalid unless this is 0.
    pub wrong: u64,
}

/// Records latencies in nanoseconds, and wrong results.
pub(crate) struct Recorder {
    histogram: Histogram<u64>,
    sum: u64,
    pub(crate) wrong: u64,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        // Three digits, from 1 ns to 60 s: bounds that the histogram crate accepts.
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

    /// Returns latencies and counts in a form that can be stored and merged.
    pub(crate) fn counts(&self) -> crate::Histogram {
        let recorded = self.histogram.iter_recorded();
        recorded.map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// Adds the records of another recorder.
    pub(crate) fn add(&mut self, other: &Self) {
        let added = self.histogram.add(&other.histogram);
        assert!(added.is_ok(), "recorders differ in their bounds");
        self.sum += other.sum;
        self.wrong += other.wrong;
    }

    /// Returns a percentile of the latency, in microseconds.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn percentile_us(&self, share: f64) -> f64 {
        self.histogram.value_at_quantile(share) as f64 / 1000.0
    }

    /// Returns the figures of one direction of a job.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn figures(&self, bytes: u64, elapsed_s: f64) -> DirectionFigures {
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        let percentile = |share: f64| micros(self.histogram.value_at_quantile(share));
        DirectionFigures {
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
    pub(crate) fn sample(&self, label: &SampleLabel, elapsed_s: f64) -> Sample {
        let count = self.count() as f64;
        let micros = |nanos: u64| nanos as f64 / 1000.0;
        Sample {
            op: label.op.into(),
            scheme: label.scheme.into(),
            block_bytes: label.block_bytes,
            queue_depth: label.queue_depth,
            iops: count / elapsed_s,
            bytes_per_s: count * label.block_bytes as f64 / elapsed_s,
            mean_us: self.sum as f64 / count.max(1.0) / 1000.0,
            p50_us: micros(self.histogram.value_at_quantile(0.5)),
            p99_us: micros(self.histogram.value_at_quantile(0.99)),
            cores: 1,
            wrong: self.wrong,
        }
    }
}

/// The identification of a result line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleLabel {
    pub(crate) op: &'static str,
    pub(crate) scheme: &'static str,
    pub(crate) block_bytes: u64,
    pub(crate) queue_depth: u32,
}
