//! Two series of measurements, case by case.
//!
//! Always true: a difference counts as one only if the repeats of the two do not overlap; series whose drives were not
//! the same are not compared unless that is asked for. Must not know: how the result is shown.

use serde::Serialize;

use crate::result::Side;
use crate::run::{Measured, RAW};
use crate::suite::Job;

/// Drives of two runs are the same if what they do differs by no more than this.
const BASELINE_MAX: f64 = 0.05;

/// One case of two series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The case.
    pub case: String,
    /// Its figures are bytes a second, not operations.
    pub bandwidth: bool,
    /// The first series; nothing if it has no result.
    pub left: Option<Series>,
    /// The second series.
    pub right: Option<Series>,
    /// What the second does more, as a share of the first.
    pub change: Option<f64>,
    /// The repeats of the two do not overlap.
    pub distinct: bool,
}

/// The repeats of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Median of the repeats: operations or bytes a second, reads and writes together.
    pub rate: f64,
    /// Lowest of them.
    pub lowest: f64,
    /// Highest of them.
    pub highest: f64,
    /// How many there are.
    pub repeats: usize,
    /// Latencies of all repeats merged, reads before writes.
    pub sides: Vec<Side>,
    /// How many of them were disturbed.
    pub disturbed: usize,
    /// How many of them had not settled.
    pub unsettled: usize,
}

/// The results of a target, one series for each case, in the order in which they were measured first.
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
    let with: Vec<(&Measured, &crate::result::Both)> =
        results.iter().filter_map(|one| Some((*one, one.all.as_ref()?))).collect();
    let rate = |both: &crate::result::Both| if bandwidth { both.bytes_per_s() } else { both.iops() };
    let mut rates: Vec<f64> = with.iter().map(|(_, both)| rate(both)).collect();
    rates.sort_by(f64::total_cmp);
    let (lowest, highest) = (*rates.first()?, *rates.last()?);
    let mut merged = crate::result::Both::default();
    with.iter().for_each(|(_, both)| merged.merge(both));
    Some(Series {
        rate: median(&rates)?,
        lowest,
        highest,
        repeats: rates.len(),
        sides: merged.mean_of(rates.len()).sides().collect(),
        disturbed: with.iter().filter(|(one, _)| !one.observation.disturbed.is_empty()).count(),
        unsettled: with.iter().filter(|(one, _)| one.steady.is_some_and(|steady| !steady.steady)).count(),
    })
}

/// The middle of sorted values.
fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// Compares a target of one run with one of another, or of the same.
pub fn compare(left: (&[Measured], &str), right: (&[Measured], &str)) -> Vec<Compared> {
    let (left, right) = (series(left.0, left.1), series(right.0, right.1));
    let mut names: Vec<(&String, &Job)> = left.iter().map(|(name, job, _)| (name, job)).collect();
    for (name, job, _) in &right {
        if !names.iter().any(|(known, _)| *known == name) {
            names.push((name, job));
        }
    }
    let of = |list: &[(String, Job, Series)], name: &str| {
        list.iter().find(|(other, ..)| other == name).map(|(.., series)| series.clone())
    };
    let one = |(name, job): (&String, &Job)| {
        let (left, right) = (of(&left, name), of(&right, name));
        let both = left.as_ref().zip(right.as_ref());
        Compared {
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

/// Where the drives of two runs differ, in words; nothing if they are the same, or either was run without them.
pub fn baselines_differ(left: &[Measured], right: &[Measured]) -> Vec<String> {
    let compared = compare((left, RAW), (right, RAW));
    let differs = |one: &Compared| {
        let change = one.change?;
        (change.abs() > BASELINE_MAX).then(|| format!("{}: {:+.0} %", one.case, change * 100.0))
    };
    compared.iter().filter_map(differs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Observation;
    use crate::result::{Both, Direction};
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
            all: Some(Both { read: Some(read), write: None }),
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
    fn the_median_counts_and_latencies_are_merged() {
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
    fn ranges_apart_are_a_difference() {
        let results = [
            measured("a", 0, 1, 100.0, 10),
            measured("a", 0, 2, 101.0, 10),
            measured("b", 0, 1, 102.0, 10),
            measured("b", 0, 2, 103.0, 10),
        ];
        assert!(compare((&results, "a"), (&results, "b"))[0].distinct);
    }

    #[test]
    fn other_drives_are_noticed() {
        let run = |iops| [measured(RAW, 0, 1, iops, 10)];
        assert!(baselines_differ(&run(100.0), &run(104.0)).is_empty());
        assert_eq!(baselines_differ(&run(100.0), &run(80.0)), ["4k random read: -20 %"]);
        assert!(baselines_differ(&[], &run(80.0)).is_empty());
    }
}
