//! The result of a job of a suite, independent of its runner.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// The figures of one direction of a job. A percentile is zero if the runner reports none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionFigures {
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// 99.95th percentile of the latency, in microseconds.
    pub p9995_us: f64,
    /// 99.999th percentile of the latency, in microseconds.
    pub p99999_us: f64,
}

/// A job's result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobResult {
    /// Name of the job.
    pub job: String,
    /// The runner.
    pub runner: String,
    /// Reads, if any.
    pub read: Option<DirectionFigures>,
    /// Writes, if any.
    pub write: Option<DirectionFigures>,
}

impl JobResult {
    /// Returns the figures of each direction, reads first.
    pub fn figures(&self) -> impl Iterator<Item = &DirectionFigures> {
        self.read.iter().chain(&self.write)
    }
}

/// One direction of a load, in mergeable form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Measured operations.
    pub ios: u64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Latencies.
    pub latencies: Histogram,
}

impl Direction {
    /// Adds the result of a load that ran at the same time.
    #[allow(clippy::cast_precision_loss)]
    pub fn merge(&mut self, other: &Self) {
        let (mine, theirs) = (self.ios as f64, other.ios as f64);
        self.mean_us = (self.mean_us * mine + other.mean_us * theirs) / (mine + theirs).max(1.0);
        self.iops += other.iops;
        self.bytes_per_s += other.bytes_per_s;
        self.ios += other.ios;
        self.latencies.merge(&other.latencies);
    }

    /// Returns the figures.
    #[allow(clippy::cast_precision_loss)]
    pub fn figures(&self) -> DirectionFigures {
        let micros = |share| self.latencies.quantile(share).unwrap_or(0) as f64 / 1000.0;
        DirectionFigures {
            iops: self.iops,
            bytes_per_s: self.bytes_per_s,
            mean_us: self.mean_us,
            p50_us: micros(0.5),
            p99_us: micros(0.99),
            p9995_us: micros(0.9995),
            p99999_us: micros(0.99999),
        }
    }
}

/// ReadWrite directions of an instance's load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReadWrite {
    /// Reads, if any.
    pub read: Option<Direction>,
    /// Writes, if any.
    pub write: Option<Direction>,
}

impl ReadWrite {
    /// Adds the result of a load that ran at the same time.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [(&mut self.read, &other.read), (&mut self.write, &other.write)] {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) => mine.merge(theirs),
                (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
                (_, None) => {}
            }
        }
    }

    /// Divides the rates by `instances`, for results that were measured one after the other.
    #[must_use]
    pub fn mean_of(mut self, instances: usize) -> Self {
        #[allow(clippy::cast_precision_loss)]
        let count = instances.max(1) as f64;
        for direction in self.read.iter_mut().chain(&mut self.write) {
            direction.iops /= count;
            direction.bytes_per_s /= count;
        }
        self
    }

    /// Returns the figures of each direction, reads first.
    pub fn figures(&self) -> impl Iterator<Item = DirectionFigures> {
        self.read.iter().chain(&self.write).map(Direction::figures)
    }

    /// Returns operations per second, reads and writes together.
    pub fn iops(&self) -> f64 {
        self.read.iter().chain(&self.write).map(|direction| direction.iops).sum()
    }

    /// Returns bytes per second, reads and writes together.
    pub fn bytes_per_s(&self) -> f64 {
        self.read.iter().chain(&self.write).map(|direction| direction.bytes_per_s).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_loads_add_up() {
        let direction = |iops: f64, ios, mean_us, nanos| Direction {
            iops,
            bytes_per_s: iops * 4096.0,
            ios,
            mean_us,
            latencies: [(nanos, ios)].into_iter().collect(),
        };
        let mut all = ReadWrite { read: Some(direction(100.0, 300, 10.0, 10_000)), write: None };
        all.merge(&ReadWrite {
            read: Some(direction(50.0, 100, 50.0, 50_000)),
            write: Some(direction(5.0, 10, 1.0, 1_000)),
        });
        let read = all.read.as_ref().unwrap().figures();
        assert_eq!((read.iops, read.mean_us, read.p50_us, read.p99_us), (150.0, 20.0, 10.0, 50.0));
        assert_eq!((all.iops(), all.bytes_per_s()), (155.0, 155.0 * 4096.0));
        assert_eq!(all.figures().count(), 2);
    }
}
