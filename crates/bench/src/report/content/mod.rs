//! What a report says, in its order: one file for each part of it, and here what they have in common.
//!
//! Must not know: whether it becomes a page or text.

mod analysis;
mod beside;
mod configuration;
mod published;
mod results;
mod summary;

use super::{Block, Document, Report, Section};
use crate::analysis::Finding;
use crate::compare::Series;
use crate::human::rate;
use crate::result::DirectionFigures;
use crate::run::RAW;
use crate::suite::Job;

/// Lines in one chart, at most: more cannot be told apart.
const LINES_MAX: usize = 8;

/// The whole report.
pub(super) fn document(report: &Report) -> Document {
    let sections = [
        ("In short", summary::summary(report)),
        ("What was measured, on what", configuration::configuration(report)),
        ("DirectionFigures by side", beside::beside(report)),
        ("Results", results::results(report)),
        ("Beside published figures", published::published(report)),
        ("Analysis", analysis::analysis(report)),
        ("Growth", analysis::growth(report)),
        ("Over time", results::over_time(report)),
        ("Drives", results::drives(report)),
        ("Once more", configuration::reproduction(report)),
    ];
    let section = |(title, blocks): (&str, Vec<Block>)| Section { title: title.into(), blocks };
    Document {
        title: report.plan.suite.title.clone(),
        subtitle: format!("{} · {}", report.plan.id, report.plan.environment.machine),
        sections: sections.into_iter().map(section).filter(|section| !section.blocks.is_empty()).collect(),
    }
}

/// The names of targets with results, the drives first.
fn targets(report: &Report) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for finding in &report.analysis.cases {
        if !names.contains(&finding.target.as_str()) {
            names.push(&finding.target);
        }
    }
    names
}

fn of<'a>(report: &'a Report, target: &'a str) -> impl Iterator<Item = &'a Finding> {
    report.analysis.cases.iter().filter(move |finding| finding.target == target)
}

/// The bound that counts; that of processors is only what it is compared with.
fn efficiency(finding: &Finding) -> Option<(f64, &str)> {
    let first = finding.efficiency.first().filter(|first| first.bound.name != "processors")?;
    Some((first.share, &first.bound.name))
}

fn strings<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn heading(report: &Report, target: &str) -> String {
    if target == RAW { "The drives themselves".into() } else { shown(report, target) }
}

/// A target's name, with what must be said beside each of its figures.
fn shown(report: &Report, target: &str) -> String {
    let system = report.systems.iter().find(|system| system.target == target);
    match system.and_then(|system| system.about.remark.as_ref()) {
        Some(remark) => format!("{target} ({remark})"),
        None => target.into(),
    }
}

/// A rate; of reads and writes apart where there are both.
fn rates(series: &Series, job: &Job) -> String {
    let bandwidth = job.is_bandwidth();
    match series.sides.as_slice() {
        [_, _] => {
            sides(&series.sides, |side| rate(if bandwidth { side.bytes_per_s } else { side.iops }, bandwidth))
        }
        _ => rate(series.rate, bandwidth),
    }
}

fn sides(sides: &[DirectionFigures], pick: impl Fn(&DirectionFigures) -> String) -> String {
    if sides.is_empty() { "-".into() } else { sides.iter().map(pick).collect::<Vec<_>>().join(" / ") }
}
