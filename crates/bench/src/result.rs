//! What a job of a suite measured, whoever ran it.

use serde::Serialize;

/// One direction of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Side {
    /// Operations a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// Latency that 99 % of operations keep, in microseconds.
    pub p99_us: f64,
    /// Latency that 99.95 % of operations keep, in microseconds.
    pub p9995_us: f64,
}

/// A job's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobResult {
    /// The job.
    pub job: String,
    /// What ran it.
    pub runner: String,
    /// Reads, if there were any.
    pub read: Option<Side>,
    /// Writes, if there were any.
    pub write: Option<Side>,
}

impl JobResult {
    /// The directions that there were, reads first.
    pub fn sides(&self) -> impl Iterator<Item = &Side> {
        self.read.iter().chain(&self.write)
    }
}
