//! Compares two series of measurements case by case.
//!
//! Invariants: a difference counts as distinct only if the ranges of the repeats do not overlap;
//! runs on different drives are compared only on request. Does not know how the result is
//! displayed.

use serde::Serialize;

use crate::result::DirectionFigures;
use crate::run::{Measured, RAW};
use crate::suite::Job;

/// Two runs have the same drives if the drives' own results differ by at most this share.
const BASELINE_MAX: f64 = 0.05;

/// A case of two series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseComparison {
    /// Name of the case.
    pub case: String,
    /// True if the rates are bytes per second, false for operations per second.
    pub bandwidth: bool,
    /// The first series; `None` without a result.
    pub left: Option<Series>,
    /// The second series.
    pub right: Option<Series>,
    /// Relative change from the first to the second.
    pub change: Option<f64>,
    /// True if the ranges of the repeats do not overlap.
    pub distinct: bool,
}

/// The repeats of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Median of the repeats: operations or bytes per second, reads and writes together.
    pub rate: f64,
    /// Lowest repeat.
    pub lowest: f64,
    /// Highest repeat.
    pub highest: f64,
    /// Number of repeats.
    pub repeats: usize,
    /// Merged latencies of all repeats, reads before writes.
    pub sides: Vec<DirectionFigures>,
    /// Number of disturbed repeats.
    pub disturbed: usize,
    /// Number of repeats that did not reach a steady state.
    pub unsettled: usize,
}

/// Returns the results of a target, one series per case, in order of measurement.
pub fn series(results: &[Measured], target: &str) -> Vec<(String, Job, Series)> {
    let mut cases: Vec<(String, Job)> = Vec::new();
    for one in results.iter().filter(|one| one.target == target) {
        if !cases.iter().any(|(name, _)| *name == one.case.name) {
            cases.push((one.case.name.clone(), one.case.job.clone()));
        }
    }
    let with_series = |(name, job): (String, Job)| {
        let of_case = results.iter().filter(|one| one.target == target && one.case.name == name);
        let series = one_series(&of_case.collect::<Vec<_>>(), job.is_bandwidth())?;
        Some((name, job, series))
    };
    cases.into_iter().filter_map(with_series).collect()
}

fn one_series(results: &[&Measured], bandwidth: bool) -> Option<Series> {
    let with: Vec<(&Measured, &crate::result::ReadWrite)> =
        results.iter().filter_map(|one| Some((*one, one.all.as_ref()?))).collect();
    let rate = |both: &crate::result::ReadWrite| if bandwidth { both.bytes_per_s() } else { both.iops() };
    let mut rates: Vec<f64> = with.iter().map(|(_, both)| rate(both)).collect();
    rates.sort_by(f64::total_cmp);
    let (lowest, highest) = (*rates.first()?, *rates.last()?);
    let mut merged = crate::result::ReadWrite::default();
    with.iter().for_each(|(_, both)| merged.merge(both));
    Some(Series {
        rate: median(&rates)?,
        lowest,
        highest,
        repeats: rates.len(),
        sides: merged.mean_of(rates.len()).figures().collect(),
        disturbed: with.iter().filter(|(one, _)| !one.observation.disturbed.is_empty()).count(),
        unsettled: with.iter().filter(|(one, _)| one.steady.is_some_and(|steady| !steady.steady)).count(),
    })
}

/// Returns the median of sorted values.
fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// Compares a target of one run with a target of another or the same run.
pub fn compare(left: (&[Measured], &str), right: (&[Measured], &str)) -> Vec<CaseComparison> {
    let (left, right) = (series(left.0, left.1), series(right.0, right.1));
    let mut names: Vec<(&String, &Job)> = left.iter().map(|(name, job, _)| (name, job)).collect();
    for (name, job, _) in &right {
        if !names.iter().any(|(existing, _)| *existing == name) {
            names.push((name, job));
        }
    }
    let of = |list: &[(String, Job, Series)], name: &str| {
        list.iter().find(|(other, ..)| other == name).map(|(.., series)| series.clone())
    };
    let one = |(name, job): (&String, &Job)| {
        let (left, right) = (of(&left, name), of(&right, name));
        let both = left.as_ref().zip(right.as_ref());
        CaseComparison {
            case: name.clone(),
            bandwidth: job.is_bandwidth(),
            change: both
                .filter(|(left, _)| left.rate > 0.0)
                .map(|(left, right)| right.rate / left.rate - 1.0),
            distinct: both
                .is_some_and(|(left, right)| left.highest < right.lowest || right.highest < left.lowest),
            left,
            right,
        }
    };
    names.into_iter().map(one).collect()
}

/// Describes the differences between the drives of two runs; empty if they are the same or a run
/// did not measure them.
pub fn baselines_differ(left: &[Measured], right: &[Measured]) -> Vec<String> {
    let compared = compare((left, RAW), (right, RAW));
    let differs = |one: &CaseComparison| {
        let change = one.change?;
        (change.abs() > BASELINE_MAX).then(|| format!("{}: {:+.0} %", one.case, change * 100.0))
    };
    compared.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Observation;
    use crate::result::{Direction, ReadWrite};
    use crate::suite::{Case, Suite};

    fn measured(target: &str, job: usize, repeat: u32, iops: f64, micros: u64) -> Measured {
        let job = Suite::raid_vm().jobs[job].clone();
        #[allow(clippy::cast_precision_loss)]
        let read = Direction {
            iops,
            bytes_per_s: iops * job.block_bytes as f64,
            ios: 100,
            mean_us: micros as f64,
            latencies: [(micros * 1000, 100)].into_iter().collect(),
        };
        Measured {
            step: format!("{repeat}/{target}/{}", job.name),
            target: target.into(),
            repeat,
            case: Case { name: job.name.clone(), job, instances: 1 },
            runner: String::new(),
            at: 0,
            all: Some(ReadWrite { read: Some(read), write: None }),
            others: std::collections::BTreeMap::new(),
            instance_iops: Vec::new(),
            seconds: Vec::new(),
            steady: None,
            attempts: 1,
            observation: Observation::default(),
            state: None,
            missing: None,
        }
    }

    #[test]
    fn rates_are_medians_and_latencies_are_merged() {
        let results = [
            measured("a", 0, 1, 100.0, 10),
            measured("a", 0, 2, 300.0, 30),
            measured("a", 0, 3, 110.0, 20),
            measured("b", 0, 1, 120.0, 10),
            measured("b", 0, 2, 310.0, 10),
            measured("b", 3, 1, 5.0, 10),
        ];
        let compared = compare((&results, "a"), (&results, "b"));
        assert_eq!(compared.len(), 2);
        let small = &compared[0];
        let left = small.left.as_ref().unwrap();
        assert_eq!((left.rate, left.lowest, left.highest, left.repeats), (110.0, 100.0, 300.0, 3));
        assert_eq!((left.sides[0].p50_us, left.sides[0].p99_us, left.sides[0].iops), (20.0, 30.0, 170.0));
        assert!((small.change.unwrap() - (215.0 / 110.0 - 1.0)).abs() < 1e-9);
        assert!(!small.distinct, "they overlap");
        let large = &compared[1];
        assert!(large.bandwidth && large.left.is_none() && large.change.is_none());
        assert_eq!(large.right.as_ref().unwrap().rate, 5.0 * f64::from(1 << 20));
    }

    #[test]
    fn disjoint_ranges_are_distinct() {
        let results = [
            measured("a", 0, 1, 100.0, 10),
            measured("a", 0, 2, 101.0, 10),
            measured("b", 0, 1, 102.0, 10),
            measured("b", 0, 2, 103.0, 10),
        ];
        assert!(compare((&results, "a"), (&results, "b"))[0].distinct);
    }

    #[test]
    fn different_drives_are_detected() {
        let run = |iops| [measured(RAW, 0, 1, iops, 10)];
        assert!(baselines_differ(&run(100.0), &run(104.0)).is_empty());
        assert_eq!(baselines_differ(&run(100.0), &run(80.0)), ["4k random read: -20 %"]);
        assert!(baselines_differ(&[], &run(80.0)).is_empty());
    }
}
