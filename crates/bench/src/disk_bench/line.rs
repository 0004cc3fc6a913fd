//! Table lines of the benchmarks that load one disk, or two in alternation.

use std::time::Duration;

use serde::Serialize;

use super::{LoadCounters, MeasuredDisk, RunLength};
use crate::suite::Job;

/// The result of a job on a back end: medians of its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name of the job.
    pub job: String,
    /// Name of the back end.
    pub system: String,
    /// Bytes per request.
    pub block_bytes: u64,
    /// Requests in flight per queue.
    pub depth: u32,
    /// Number of queues.
    pub queues: u32,
    /// The medians.
    pub median: Round,
    /// Ratio of the first back end's operations per second to this one's, median of the rounds;
    /// only for the second back end.
    pub first_is_times: Option<f64>,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// The result of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Round {
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Mean latency in microseconds.
    pub mean_us: f64,
    /// Median latency in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// 99.9th percentile of the latency, in microseconds.
    pub p999_us: f64,
    /// 99.99th percentile of the latency, in microseconds.
    pub p9999_us: f64,
    /// Processors used by the back end; `None` if unknown.
    pub cores: Option<f64>,
    /// Blocks with wrong contents. The line is invalid unless this is 0.
    pub wrong: u64,
}

impl Round {
    /// Returns the sum of the counters of a job's loads.
    pub(crate) fn of(counted: Vec<LoadCounters>, block_bytes: u64, cores: Option<f64>) -> Self {
        let nanos = counted.iter().map(|counted| counted.nanos).max().unwrap_or(0).max(1);
        let seconds = Duration::from_nanos(nanos).as_secs_f64();
        let mut parts = counted.into_iter().flat_map(|counted| counted.sides);
        let Some(mut all) = parts.next() else { return Self::default() };
        parts.for_each(|part| all.add(&part));
        let side = all.figures(all.count() * block_bytes, seconds);
        Self {
            iops: side.iops,
            bytes_per_s: side.bytes_per_s,
            mean_us: side.mean_us,
            p50_us: side.p50_us,
            p99_us: side.p99_us,
            p999_us: all.percentile_us(0.999),
            p9999_us: all.percentile_us(0.9999),
            cores,
            wrong: all.wrong,
        }
    }

    /// Returns the median of each figure and the sum of wrong blocks.
    pub(crate) fn median(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure));
        let cores: Vec<f64> = rounds.iter().filter_map(|round| round.cores).collect();
        Self {
            iops: of(|round| round.iops),
            bytes_per_s: of(|round| round.bytes_per_s),
            mean_us: of(|round| round.mean_us),
            p50_us: of(|round| round.p50_us),
            p99_us: of(|round| round.p99_us),
            p999_us: of(|round| round.p999_us),
            p9999_us: of(|round| round.p9999_us),
            cores: (!cores.is_empty()).then(|| median(cores.iter().copied())),
            wrong: rounds.iter().map(|round| round.wrong).sum(),
        }
    }
}

/// Returns the median; zero without values.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) { (at(half.wrapping_sub(1)) + at(half)) / 2.0 } else { at(half) }
}

/// Measures a job on each disk, in rounds that each begin with the next disk. Returns a line for
/// each disk.
pub(super) fn measure_in_turns<D: MeasuredDisk>(
    job: &Job,
    disks: &mut [D],
    count: u32,
    length: RunLength,
) -> Result<Vec<Line>, D::Error> {
    let mut rounds = vec![Vec::new(); disks.len()];
    for round in 0..count as usize {
        for turn in 0..disks.len() {
            let index = (turn + round) % disks.len();
            if let (Some(disk), Some(rounds)) = (disks.get_mut(index), rounds.get_mut(index)) {
                rounds.push(disk.measure(job, length)?);
            }
        }
    }
    let first = rounds.first().cloned().unwrap_or_default();
    let lines = disks.iter().zip(rounds).enumerate().map(|(index, (disk, rounds))| Line {
        job: job.name.clone(),
        system: disk.name().to_owned(),
        block_bytes: job.block_bytes,
        depth: job.depth,
        queues: job.threads,
        median: Round::median(&rounds),
        first_is_times: (index > 0)
            .then(|| median(first.iter().zip(&rounds).map(|(first, this)| first.iops / this.iops))),
        rounds,
    });
    Ok(lines.collect())
}
