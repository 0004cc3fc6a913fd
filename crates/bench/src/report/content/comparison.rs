//! Comparison of targets: the rates of each job on each target, also relative to a common
//! reference.
//!
//! The reference is the limit of independent drives, which have no redundancy and do not merge
//! writes. It is the same for systems with and without redundancy; a system that writes full
//! stripes may exceed it.

use super::{of, rates, shown, strings, targets};
use crate::analysis::Finding;
use crate::bounds::{Layout, bounds};
use crate::report::{Block, Chart, Kind, Report, Table};
use crate::run::RAW;
use crate::suite::Job;

/// Returns the cases of all targets, in order.
fn cases(report: &Report) -> Vec<&Finding> {
    let mut cases: Vec<&Finding> = Vec::new();
    for finding in report.analysis.cases.iter().filter(|finding| finding.target != RAW) {
        if !cases.iter().any(|other| other.case == finding.case) {
            cases.push(finding);
        }
    }
    cases
}

/// Returns the operations per second of a job on healthy independent drives.
fn independent_limit(report: &Report, job: &Job) -> Option<f64> {
    let known = report.analysis.limits.as_ref()?;
    let drives = u32::try_from(report.plan.drives.len()).ok().filter(|drives| *drives > 0)?;
    let job = Job { degraded: false, ..job.clone() };
    let all = bounds(&job, &known.limits, Layout { drives, data: 1, parity: 0, pools: 1 }, None);
    all.first().map(|bound| bound.iops).filter(|iops| *iops > 0.0)
}

pub(super) fn comparison(report: &Report) -> Vec<Block> {
    let targets: Vec<&str> = targets(report).into_iter().filter(|name| *name != RAW).collect();
    if targets.len() < 2 {
        return Vec::new();
    }
    let cases = cases(report);
    let find = |target: &str, case: &str| of(report, target).find(|finding| finding.case == case).cloned();
    let row = |case: &&Finding| {
        let rate = |target: &&str| {
            find(target, &case.case).map_or("-".into(), |finding| rates(&finding.series, &finding.job))
        };
        [case.case.clone()].into_iter().chain(targets.iter().map(rate)).collect()
    };
    let columns = strings(["job"]).into_iter().chain(targets.iter().map(|target| shown(report, target)));
    let table = Table { columns: columns.collect(), rows: cases.iter().map(row).collect(), figures: true };
    let mut blocks = vec![Block::Table(table)];
    blocks.extend(unavailable(report));
    let share = |target: &str, case: &Finding| {
        let iops: f64 = find(target, &case.case)?.series.sides.iter().map(|side| side.iops).sum();
        Some(iops / independent_limit(report, &case.job)? * 100.0)
    };
    let series: Vec<(String, Vec<Option<f64>>)> = targets
        .iter()
        .map(|target| (shown(report, target), cases.iter().map(|case| share(target, case)).collect()))
        .collect();
    if series.iter().any(|(_, values)| values.iter().any(Option::is_some)) {
        blocks.push(Block::Chart(Chart {
            title: "Percent of the independent drives' limit, without redundancy".into(),
            kind: Kind::Bars,
            labels: cases.iter().map(|case| case.case.clone()).collect(),
            series,
        }));
    }
    blocks
}

/// Returns a note on requested systems that are not available.
fn unavailable(report: &Report) -> Option<Block> {
    let list = &report.plan.absent;
    (!list.is_empty()).then(|| Block::Text(format!("Not available: {}.", list.join("; "))))
}
