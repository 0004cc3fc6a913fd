//! The contents of a report: one module per section, and shared helpers.

mod analysis;
mod comparison;
mod configuration;
mod objects;
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

/// Maximum lines in a chart that can be distinguished.
const LINES_MAX: usize = 8;

/// Returns the whole report.
pub(super) fn document(report: &Report) -> Document {
    let sections = [
        ("Summary", summary::summary(report)),
        ("Configuration", configuration::configuration(report)),
        ("Throughput, processors and drives", objects::objects(report)),
        ("Comparison of targets", comparison::comparison(report)),
        ("Results", results::results(report)),
        ("Published figures", published::published(report)),
        ("Analysis", analysis::analysis(report)),
        ("Growth with load", analysis::growth(report)),
        ("Over time", results::over_time(report)),
        ("Drive utilisation", results::drives(report)),
        ("Reproduction", configuration::reproduction(report)),
    ];
    let section = |(title, blocks): (&str, Vec<Block>)| Section { title: title.into(), blocks };
    Document {
        title: report.plan.suite.title.clone(),
        subtitle: format!("{} · {}", report.plan.id, report.plan.environment.machine),
        sections: sections.into_iter().map(section).filter(|section| !section.blocks.is_empty()).collect(),
    }
}

/// Returns the names of targets with results, the drives first.
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

/// Returns the efficiency relative to the tightest bound, except that of the processors.
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

/// Returns a target's name with its remark.
fn shown(report: &Report, target: &str) -> String {
    let system = report.systems.iter().find(|system| system.target == target);
    match system.and_then(|system| system.about.remark.as_ref()) {
        Some(remark) => format!("{target} ({remark})"),
        None => target.into(),
    }
}

/// Formats a rate, with reads and writes separately if there are both.
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
