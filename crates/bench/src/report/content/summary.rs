//! The summary: efficiency and bottleneck of each job, and reasons for doubt.

use super::published::best_published;
use super::{LINES_MAX, efficiency, of, rates, shown, strings, targets};
use crate::analysis::Finding;
use crate::human::percent;
use crate::report::{Block, Chart, Kind, Report, Table};
use crate::run::RAW;

pub(super) fn summary(report: &Report) -> Vec<Block> {
    let mut blocks = vec![Block::Text(report.plan.suite.about.trim().replace('\n', " "))];
    let findings: Vec<String> = targets(report)
        .into_iter()
        .filter(|name| *name != RAW)
        .filter_map(|name| efficiency_sentence(&shown(report, name), &of(report, name).collect::<Vec<_>>()))
        .collect();
    if !findings.is_empty() {
        blocks.push(Block::List(findings));
    }
    let mut rows = Vec::new();
    for finding in report.analysis.cases.iter().filter(|finding| finding.target != RAW) {
        let best = best_published(report, finding)
            .map_or("-".into(), |(system, share)| format!("{share:.0} % ({system})"));
        rows.push(vec![
            finding.case.clone(),
            shown(report, &finding.target),
            rates(&finding.series, &finding.job),
            efficiency(finding).map_or("-".into(), |(share, bound)| format!("{} of {bound}", percent(share))),
            best,
            finding.bottleneck.what.clone(),
        ]);
    }
    if !rows.is_empty() {
        let columns = strings(["job", "target", "rate", "efficiency", "best published", "limited by"]);
        let table = without_empty(Table { columns, rows, figures: false });
        let has_published = table.columns.iter().any(|column| column == "best published");
        blocks.push(Block::Table(table));
        if has_published {
            blocks.push(Block::Text(
                "Best published: relative to the same bound of the document's drives if they are known; with a failed drive, \
                 as printed."
                    .into(),
            ));
        }
    }
    blocks.extend(efficiency_chart(report));
    if !report.analysis.doubts.is_empty() {
        blocks.push(Block::Heading("Reasons for doubt".into()));
        blocks.push(Block::List(report.analysis.doubts.clone()));
    }
    blocks
}

/// Removes empty columns.
fn without_empty(mut table: Table) -> Table {
    let with: Vec<bool> = (0..table.columns.len())
        .map(|column| table.rows.iter().any(|row| row.get(column).is_some_and(|cell| cell != "-")))
        .collect();
    let keep = |cells: &mut Vec<String>| {
        let mut with = with.iter();
        cells.retain(|_| with.next().copied().unwrap_or(true));
    };
    keep(&mut table.columns);
    table.rows.iter_mut().for_each(keep);
    table
}

/// Describes the lowest and highest efficiency of a target in a sentence.
fn efficiency_sentence(target: &str, findings: &[&Finding]) -> Option<String> {
    let shares = || findings.iter().filter_map(|finding| Some((efficiency(finding)?.0, finding)));
    let (low, worst) = shares().min_by(|left, right| left.0.total_cmp(&right.0))?;
    let (high, best) = shares().max_by(|left, right| left.0.total_cmp(&right.0))?;
    let cause = &worst.bottleneck.what;
    Some(if worst.case == best.case {
        format!(
            "{target} reaches {} of the tightest bound ({}), limited by {cause}.",
            percent(low),
            worst.case
        )
    } else {
        format!(
            "{target} reaches {} ({}) to {} ({}) of the tightest bound; the lowest is limited by {cause}.",
            percent(low),
            worst.case,
            percent(high),
            best.case
        )
    })
}

fn efficiency_chart(report: &Report) -> Option<Block> {
    let targets: Vec<&str> = targets(report).into_iter().filter(|name| *name != RAW).collect();
    let mut labels: Vec<(&str, &Finding)> = Vec::new();
    for finding in report.analysis.cases.iter().filter(|finding| finding.target != RAW) {
        if efficiency(finding).is_some() && !labels.iter().any(|(case, _)| *case == finding.case) {
            labels.push((&finding.case, finding));
        }
    }
    labels.truncate(2 * LINES_MAX);
    if labels.is_empty() {
        return None;
    }
    let mut series: Vec<(String, Vec<Option<f64>>)> = Vec::new();
    for target in targets {
        let value = |case: &str| {
            let finding = of(report, target).find(|finding| finding.case == case)?;
            efficiency(finding).map(|(share, _)| share * 100.0)
        };
        series.push((shown(report, target), labels.iter().map(|(case, _)| value(case)).collect()));
    }
    let published: Vec<Option<f64>> =
        labels.iter().map(|(_, finding)| best_published(report, finding).map(|(_, share)| share)).collect();
    if published.iter().any(Option::is_some) {
        series.push(("best published".into(), published));
    }
    let labels = labels.into_iter().map(|(case, _)| case.to_owned()).collect();
    // Each target has its own bound: systems without redundancy write once where others write
    // twice.
    let title = "Efficiency: percent of each target's tightest bound".into();
    Some(Block::Chart(Chart { title, kind: Kind::Bars, labels, series }))
}
