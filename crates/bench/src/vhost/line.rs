//! What was measured over vhost-user, as lines.

use std::time::Duration;

use serde::Serialize;

use super::load::Counted;

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The jobs, on each back end.
    pub lines: Vec<Line>,
    /// Processor time at parts of the peak.
    pub shares: Vec<Share>,
}

/// A job on a back end: medians of its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The job.
    pub job: String,
    /// The back end.
    pub system: String,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests under way on each queue.
    pub depth: u32,
    /// Queues.
    pub queues: u32,
    /// The medians.
    pub median: Round,
    /// Operations a second of the first back end for one of this one, median of the rounds; for the one compared with.
    pub first_is_times: Option<f64>,
    /// The rounds.
    pub rounds: Vec<Round>,
}

/// One round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Round {
    /// Operations a second.
    pub iops: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Mean round trip, in microseconds.
    pub mean_us: f64,
    /// Half of the round trips were no longer, in microseconds.
    pub p50_us: f64,
    /// 99 % of them.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// 99.99 %.
    pub p9999_us: f64,
    /// Processors that the back end used; absent where that cannot be found out.
    pub cores: Option<f64>,
    /// Blocks that were read and were not those asked for: anything but 0 makes the line worthless.
    pub wrong: u64,
}

/// Processor time at a part of the peak.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Which part, for people.
    pub load: String,
    /// The back end.
    pub system: String,
    /// What was measured.
    pub round: Round,
    /// Processors for 100,000 operations a second.
    pub cores_per_100k: Option<f64>,
}

impl Round {
    /// The sum of what the loads of a job counted.
    pub(super) fn of(counted: Vec<Counted>, block_bytes: u64, cores: Option<f64>) -> Self {
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

    /// The median of each figure; the sum of what was wrong.
    pub(super) fn median(rounds: &[Self]) -> Self {
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

/// The median; zero of nothing.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) { (at(half.wrapping_sub(1)) + at(half)) / 2.0 } else { at(half) }
}
