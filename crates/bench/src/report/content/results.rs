//! The results: rates, latencies, rates over time, drive utilisation.

use super::{LINES_MAX, efficiency, heading, of, rates, sides, strings, targets};
use crate::analysis::{Finding, fullness};
use crate::human::{percent, rate, time};
use crate::report::{Block, Chart, Kind, Report, Table};
use crate::run::{Measured, Missing, RAW};

pub(super) fn results(report: &Report) -> Vec<Block> {
    let mut blocks = Vec::new();
    for target in targets(report) {
        blocks.push(Block::Heading(heading(report, target)));
        let several = of(report, target).any(|finding| finding.series.repeats > 1);
        let row = |finding: &Finding| {
            let (series, sides_of) = (&finding.series, &finding.series.sides);
            let spread = several.then(|| {
                let bandwidth = finding.job.is_bandwidth();
                format!("{} / {}", rate(series.lowest, bandwidth), rate(series.highest, bandwidth))
            });
            let first = [finding.case.clone(), rates(series, &finding.job)];
            let figures = [
                efficiency(finding).map_or("-".into(), |(share, _)| percent(share)),
                sides(sides_of, |side| time(side.mean_us)),
                sides(sides_of, |side| time(side.p99_us)),
                sides(sides_of, |side| time(side.p9995_us)),
                sides(sides_of, |side| time(side.p99999_us)),
                finding.cpu_us.map_or("-".into(), |cost| format!("{cost:.1} us")),
            ];
            first.into_iter().chain(spread).chain(figures).collect()
        };
        let mut columns =
            strings(["job", "rate", "lowest / highest", "efficiency", "mean", "99 %", "99.95 %"]);
        columns.extend(strings(["99.999 %", "CPU per operation"]));
        if !several {
            columns.remove(2);
        }
        let rows = of(report, target).map(row).collect();
        blocks.push(Block::Table(Table { columns, rows, figures: true }));
    }
    let missing: Vec<String> = report.results.iter().filter_map(missing).collect();
    if !missing.is_empty() {
        blocks.push(Block::Heading("Missing results".into()));
        blocks.push(Block::List(missing));
    }
    blocks.extend(
        targets(report).into_iter().filter(|name| *name != RAW).flat_map(|name| latencies(report, name)),
    );
    blocks
}

fn missing(one: &Measured) -> Option<String> {
    let why = match one.missing.as_ref()? {
        Missing::Failed(why) => format!("failed: {}", why.lines().next().unwrap_or_default()),
        Missing::LeftOut(why) => format!("skipped: {why}"),
    };
    Some(format!("{} on {}: {why}", one.case.name, one.target))
}

fn latencies(report: &Report, target: &str) -> Option<Block> {
    let mut series = Vec::new();
    for finding in of(report, target) {
        let both = finding.series.sides.len() > 1;
        for (side, direction) in finding.series.sides.iter().zip([", reads", ", writes"]) {
            let values = [side.p50_us, side.p99_us, side.p9995_us, side.p99999_us];
            // Of a runner without percentiles.
            if values.iter().all(|value| *value <= 0.0) {
                continue;
            }
            let name = format!("{}{}", finding.case, if both { direction } else { "" });
            series.push((name, values.map(|micros| Some(micros / 1000.0)).to_vec()));
        }
    }
    series.truncate(LINES_MAX);
    let target = heading(report, target);
    let title = format!("{target}: latency percentiles in milliseconds");
    let labels = strings(["50 %", "99 %", "99.95 %", "99.999 %"]);
    (!series.is_empty()).then_some(Block::Chart(Chart { title, kind: Kind::LinesLog, labels, series }))
}

/// Charts each second of the last repeat of each case, in percent of its mean.
pub(super) fn over_time(report: &Report) -> Vec<Block> {
    let mut blocks = Vec::new();
    for target in targets(report) {
        let mut series: Vec<(String, Vec<Option<f64>>)> = Vec::new();
        for finding in of(report, target) {
            let last =
                report.results.iter().rfind(|one| one.target == target && one.case.name == finding.case);
            let values: Vec<f64> = last
                .map(|one| one.seconds.iter().map(|second| second.read + second.write).collect())
                .unwrap_or_default();
            #[allow(clippy::cast_precision_loss)]
            let mean = values.iter().sum::<f64>() / (values.len().max(1)) as f64;
            // Two points do not make a curve.
            if values.len() > 2 && mean > 0.0 {
                let values = values.iter().map(|value| Some(value / mean * 100.0)).collect();
                series.push((finding.case.clone(), values));
            }
        }
        series.truncate(LINES_MAX);
        let longest = series.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
        for (_, values) in &mut series {
            values.resize(longest, None);
        }
        if !series.is_empty() {
            let title = format!("{}: rate per second, percent of the mean", heading(report, target));
            let labels = (1..=longest).map(|second| second.to_string()).collect();
            blocks.push(Block::Chart(Chart { title, kind: Kind::Lines, labels, series }));
        }
    }
    blocks
}

/// Charts the utilisation of each drive relative to its tightest limit.
pub(super) fn drives(report: &Report) -> Vec<Block> {
    let Some(known) = &report.analysis.limits else { return Vec::new() };
    let mut blocks = Vec::new();
    for target in targets(report) {
        let cases: Vec<(&Finding, &Measured)> = of(report, target)
            .filter_map(|finding| {
                let same = |one: &&Measured| {
                    one.target == target && one.case.name == finding.case && one.all.is_some()
                };
                Some((finding, report.results.iter().rfind(same)?))
            })
            .collect();
        let names = cases.iter().map(|(_, one)| &one.observation.drives).max_by_key(|drives| drives.len());
        let labels: Vec<String> = names.into_iter().flatten().map(|drive| drive.name.clone()).collect();
        let row = |(finding, one): &(&Finding, &Measured)| {
            let all = one.observation.drives.iter();
            let full: Vec<_> = all.map(|drive| Some(fullness(drive, &known.limits) * 100.0)).collect();
            (finding.case.clone(), full)
        };
        if !labels.is_empty() {
            blocks.push(Block::Chart(Chart {
                title: format!("{}: percent of each drive's limit", heading(report, target)),
                kind: Kind::Heat,
                labels,
                series: cases.iter().map(row).collect(),
            }));
        }
    }
    blocks
}
