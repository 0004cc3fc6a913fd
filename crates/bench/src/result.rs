//! What a job of a suite measured, whoever ran it.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// One direction of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Latency that 99.999 % of operations keep, in microseconds.
    pub p99999_us: f64,
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

/// One direction of a load, in a form that can be merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Direction {
    /// Operations a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Operations that were measured.
    pub ios: u64,
    /// Mean latency, in microseconds.
    pub mean_us: f64,
    /// Latencies.
    pub latencies: Histogram,
}

impl Direction {
    /// Takes in what went on at the same time.
    #[allow(clippy::cast_precision_loss)]
    pub fn merge(&mut self, other: &Self) {
        let (mine, theirs) = (self.ios as f64, other.ios as f64);
        self.mean_us = (self.mean_us * mine + other.mean_us * theirs) / (mine + theirs).max(1.0);
        self.iops += other.iops;
        self.bytes_per_s += other.bytes_per_s;
        self.ios += other.ios;
        self.latencies.merge(&other.latencies);
    }

    /// The figures.
    #[allow(clippy::cast_precision_loss)]
    pub fn side(&self) -> Side {
        let micros = |share| self.latencies.quantile(share).unwrap_or(0) as f64 / 1000.0;
        Side {
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

/// Both directions of what one instance did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Both {
    /// Reads, if there were any.
    pub read: Option<Direction>,
    /// Writes, if there were any.
    pub write: Option<Direction>,
}

impl Both {
    /// Takes in what went on at the same time.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [(&mut self.read, &other.read), (&mut self.write, &other.write)] {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) => mine.merge(theirs),
                (mine @ None, Some(theirs)) => *mine = Some(theirs.clone()),
                (_, None) => {}
            }
        }
    }

    /// The rates of one of so many that did not work at the same time.
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

    /// The directions that there were, reads first.
    pub fn sides(&self) -> impl Iterator<Item = Side> {
        self.read.iter().chain(&self.write).map(Direction::side)
    }

    /// Operations a second, reads and writes together.
    pub fn iops(&self) -> f64 {
        self.read.iter().chain(&self.write).map(|direction| direction.iops).sum()
    }

    /// Bytes a second, read and written together.
    pub fn bytes_per_s(&self) -> f64 {
        self.read.iter().chain(&self.write).map(|direction| direction.bytes_per_s).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_on_side_by_side_adds_up() {
        let direction = |iops: f64, ios, mean_us, nanos| Direction {
            iops,
            bytes_per_s: iops * 4096.0,
            ios,
            mean_us,
            latencies: [(nanos, ios)].into_iter().collect(),
        };
        let mut all = Both { read: Some(direction(100.0, 300, 10.0, 10_000)), write: None };
        all.merge(&Both {
            read: Some(direction(50.0, 100, 50.0, 50_000)),
            write: Some(direction(5.0, 10, 1.0, 1_000)),
        });
        let read = all.read.as_ref().unwrap().side();
        assert_eq!((read.iops, read.mean_us, read.p50_us, read.p99_us), (150.0, 20.0, 10.0, 50.0));
        assert_eq!((all.iops(), all.bytes_per_s()), (155.0, 155.0 * 4096.0));
        assert_eq!(all.sides().count(), 2);
    }
}
