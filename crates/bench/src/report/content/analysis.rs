//! The bottleneck of each job with evidence, and the growth of rates with load.

use super::{LINES_MAX, heading, of, shown, strings, targets};
use crate::analysis::{Along, Finding};
use crate::human::{percent, rate, time};
use crate::report::{Block, Chart, Kind, Report, Table};

/// Formats a bound in the unit of the job's rate.
fn bound_rate(finding: &Finding, iops: f64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let block = finding.job.block_bytes as f64;
    if finding.job.is_bandwidth() { rate(iops * block, true) } else { rate(iops, false) }
}

pub(super) fn analysis(report: &Report) -> Vec<Block> {
    let mut blocks = Vec::new();
    for target in targets(report) {
        blocks.push(Block::Heading(heading(report, target)));
        for finding in of(report, target) {
            blocks.push(Block::Text(format!("{}: limited by {}.", finding.case, finding.bottleneck.what)));
            let mut lines = finding.bottleneck.evidence.clone();
            lines.extend(finding.efficiency.iter().map(|one| {
                let bound = &one.bound;
                format!(
                    "{} of the bound '{}', {} ({}), at saturation of {}",
                    percent(one.share),
                    bound.name,
                    bound_rate(finding, bound.iops),
                    bound.formula,
                    bound.saturates
                )
            }));
            lines.extend(finding.state.clone());
            blocks.push(Block::List(lines));
        }
    }
    if !report.analysis.lost.is_empty() {
        blocks.push(Block::Heading("With a failed drive".into()));
        let row = |lost: &crate::analysis::FailedDriveCost| {
            vec![
                lost.healthy.clone(),
                shown(report, &lost.target),
                percent(lost.rate),
                lost.p9995.map_or("-".into(), |factor| format!("x {factor:.1}")),
            ]
        };
        let columns = strings(["job", "target", "remaining rate", "99.95 % latency"]);
        let rows = report.analysis.lost.iter().map(row).collect();
        blocks.push(Block::Table(Table { columns, rows, figures: true }));
    }
    blocks
}

pub(super) fn growth(report: &Report) -> Vec<Block> {
    let mut blocks = Vec::new();
    let word = |along| if along == Along::Instances { "instances" } else { "depth" };
    let row = |curve: &crate::analysis::Curve| {
        let knee =
            curve.knee.map_or("none: still growing".into(), |knee| format!("{knee} {}", word(curve.along)));
        let at = curve.points.iter().find(|point| Some(point.load) == curve.knee).or(curve.points.last());
        let figures = at.map_or([String::new(), String::new()], |point| {
            [rate(point.rate, curve.bandwidth), time(point.mean_us)]
        });
        [vec![curve.job.clone(), curve.target.clone(), knee], figures.to_vec()].concat()
    };
    if !report.analysis.curves.is_empty() {
        let columns = strings(["job", "target", "knee", "rate at the knee", "mean latency at the knee"]);
        let rows = report.analysis.curves.iter().map(row).collect();
        blocks.push(Block::Text(
            "The knee is the first point with 90 % of the highest rate; more load mainly adds latency."
                .into(),
        ));
        blocks.push(Block::Table(Table { columns, rows, figures: true }));
    }
    for (along, bandwidth) in
        [(Along::Instances, false), (Along::Instances, true), (Along::Depth, false), (Along::Depth, true)]
    {
        let curves: Vec<_> = report
            .analysis
            .curves
            .iter()
            .filter(|curve| curve.along == along && curve.bandwidth == bandwidth)
            .take(LINES_MAX)
            .collect();
        let mut loads: Vec<u32> =
            curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.load)).collect();
        loads.sort_unstable();
        loads.dedup();
        let (unit, symbol) =
            if bandwidth { (1e6, "MB/s") } else { (1e3, "thousands of operations per second") };
        let line = |curve: &&crate::analysis::Curve| {
            let value = |load: &u32| {
                curve.points.iter().find(|point| point.load == *load).map(|point| point.rate / unit)
            };
            (format!("{} ({})", curve.job, curve.target), loads.iter().map(value).collect())
        };
        if !curves.is_empty() {
            blocks.push(Block::Chart(Chart {
                title: format!("By {}: {symbol}", word(along)),
                kind: Kind::Lines,
                series: curves.iter().map(line).collect(),
                labels: loads.iter().map(u32::to_string).collect(),
            }));
        }
    }
    blocks
}
