//! Published results of the same jobs, compared with the measured ones.

use super::{efficiency, of, targets};
use crate::analysis::Finding;
use crate::bounds::{Layout, bounds};
use crate::lab;
use crate::report::{Block, Chart, Kind, Report, Table};
use crate::run::RAW;
use crate::suite::{Figure, Job, Published};

/// Returns the highest published efficiency of a job: relative to the same bound of the document's
/// drives, or as printed if that is unknown. With a failed drive it is always as printed, because
/// documents do not specify the failed drives.
pub(super) fn best_published<'a>(report: &'a Report, finding: &Finding) -> Option<(&'a str, f64)> {
    let suite = &report.plan.suite;
    let job = suite.jobs.iter().find(|job| job.name == finding.job.name)?;
    let name = efficiency(finding).map_or("", |(_, name)| name);
    let figures = suite.published.iter().filter_map(|published| {
        let figure = published.figure(&job.name)?;
        let own = document_bound(report, published, job, name);
        let rate = figure.unit(job).back(figure.value.iter().sum(), job.block_bytes, false);
        let share = own.map(|bound| rate / bound * 100.0).or(figure.efficiency)?;
        Some((published.system.as_str(), share))
    });
    figures.max_by(|left, right| left.1.total_cmp(&right.1))
}

/// Returns a bound of the document's healthy drives.
fn document_bound(report: &Report, published: &Published, job: &Job, name: &str) -> Option<f64> {
    let suite = &report.plan.suite;
    let limits = lab::model(suite.drive_model.as_deref()?)?.limits;
    let drives = published.drives.or(suite.drives)?;
    let layout = Layout::parse(suite.scheme.as_deref()?, drives, suite.pools).ok()?;
    let all = bounds(job, &limits, layout, None);
    let bound = all.iter().find(|bound| bound.name == name && !job.degraded)?;
    Some(bound.iops)
}

pub(super) fn published(report: &Report) -> Vec<Block> {
    let plan = &report.plan;
    // Published rates are comparable if the number of drives is the same and the drives are a
    // fraction of the same model.
    let scale = plan.lab.as_ref().filter(|lab| {
        let as_many = plan.suite.drives.is_some_and(|count| count as usize == plan.drives.len());
        as_many && plan.suite.drive_model.as_ref() == Some(&lab.model)
    });
    let share = scale.map(|lab| lab.fraction.value());
    let findings: Vec<&Finding> =
        report.analysis.cases.iter().filter(|finding| finding.target != RAW).collect();
    let systems: Vec<&Published> = plan
        .suite
        .published
        .iter()
        .filter(|published| {
            published.figures.iter().any(|figure| findings.iter().any(|one| one.job.name == figure.job))
        })
        .collect();
    if systems.is_empty() {
        return Vec::new();
    }
    let text = |figure: &Figure, job: &Job| {
        let values: Vec<String> = figure.value.iter().map(|value| format!("{value}")).collect();
        let share = figure.efficiency.map_or(String::new(), |share| format!(" ({share:.0} %)"));
        format!("{} {}{share}", values.join(" / "), figure.unit(job).symbol())
    };
    let mut jobs: Vec<&Job> = Vec::new();
    for finding in &findings {
        if !jobs.iter().any(|job| job.name == finding.job.name) {
            jobs.push(&finding.job);
        }
    }
    let row = |job: &&Job| {
        let of =
            |system: &&Published| system.figure(&job.name).map_or("-".into(), |figure| text(figure, job));
        [vec![job.name.clone()], systems.iter().map(of).collect()].concat()
    };
    let columns = [vec!["job".to_owned()], systems.iter().map(|one| one.system.clone()).collect()].concat();
    let mut blocks = vec![
        Block::Text(format!(
            "As published, on the hardware of the source: {}. Reads before writes; the printed efficiency, if any, in brackets.",
            plan.suite.source
        )),
        Block::Table(Table { columns, rows: jobs.iter().map(row).collect(), figures: true }),
    ];
    // Results with other numbers of instances stay in the table only.
    let comparable =
        |one: &&&Published| one.instances.is_none_or(|count| plan.suite.instances.contains(&count));
    let comparable: Vec<&Published> = systems.iter().filter(comparable).copied().collect();
    for bandwidth in [false, true] {
        let jobs: Vec<&Job> = jobs.iter().copied().filter(|job| job.is_bandwidth() == bandwidth).collect();
        blocks.extend(rate_chart(report, &jobs, &comparable, share, bandwidth));
    }
    blocks
}

/// Draws measured rates, and published rates scaled to the fraction of the drives.
fn rate_chart(
    report: &Report,
    jobs: &[&Job],
    systems: &[&Published],
    share: Option<f64>,
    bandwidth: bool,
) -> Option<Block> {
    let (unit, word) = if bandwidth { (1e6, "MB/s") } else { (1e3, "thousands of operations per second") };
    let mut series: Vec<(String, Vec<Option<f64>>)> = Vec::new();
    for target in targets(report).into_iter().filter(|name| *name != RAW) {
        let value = |job: &&Job| {
            let all = of(report, target).filter(|finding| finding.job.name == job.name);
            all.map(|finding| finding.series.rate / unit).max_by(f64::total_cmp)
        };
        series.push((target.into(), jobs.iter().map(value).collect()));
    }
    if let Some(share) = share {
        for system in systems {
            let value = |job: &&Job| {
                let figure = system.figure(&job.name)?;
                let sum: f64 = figure.value.iter().sum();
                // More drives than those of the lab: their share of the rate.
                let part = report.plan.suite.drives.zip(system.drives);
                let part = part.map_or(1.0, |(own, all)| f64::from(own) / f64::from(all));
                Some(figure.unit(job).back(sum, job.block_bytes, bandwidth) * share * part / unit)
            };
            series.push((system.system.clone(), jobs.iter().map(value).collect()));
        }
    }
    series.retain(|(_, values)| values.iter().any(Option::is_some));
    let scaled =
        if share.is_some() { ", published rates scaled to the same fraction of the drives" } else { "" };
    let title = format!("Rates in {word}{scaled}");
    let labels = jobs.iter().map(|job| job.name.clone()).collect();
    (!jobs.is_empty() && !series.is_empty()).then_some(Block::Chart(Chart {
        title,
        kind: Kind::Bars,
        labels,
        series,
    }))
}
