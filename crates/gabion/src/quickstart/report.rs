//! The quickstart's result: the reference document's table, with what was measured here in front.

use bench::{DirectionFigures, Job, JobResult, Published, Suite};
use serde::Serialize;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) suite: String,
    pub(super) machine: String,
    /// What ran the jobs.
    pub(super) runner: String,
    /// Bytes of each drive file, and how many there are.
    pub(super) drive_bytes: u64,
    pub(super) drives: u16,
    pub(super) scheme: String,
    pub(super) seconds: u64,
    /// One plain file of the same file system, without protection, by the same jobs.
    pub(super) raw: Vec<JobResult>,
    pub(super) gabion: Vec<JobResult>,
}

/// What the document gives for all its machines together.
fn published(suite: &Suite) -> Vec<&Published> {
    suite.published_for(suite.instances.first().copied().unwrap_or(1)).collect()
}

/// The table, under its titles.
pub(super) fn table(report: &Report, suite: &Suite) -> String {
    let published = published(suite);
    let mut lines = vec![format!(
        "{:<31} {:>16} {:>12} {:>12} {:>14}   {:>14} {:>14}",
        "",
        "Gabion, here",
        "mean us",
        "99.95 % us",
        "raw file, here",
        published.first().map_or("", |of| of.system.as_str()),
        published.get(1).map_or("", |of| of.system.as_str()),
    )];
    for job in &suite.jobs {
        let Some(result) = report.gabion.iter().find(|result| result.job == job.name) else { continue };
        let raw_name = job.name.trim_end_matches(", one drive lost");
        let raw = report.raw.iter().find(|raw| raw.job == raw_name);
        let of = |index: usize| published.get(index).and_then(|of| of.figure(&job.name));
        let figure = |index| of(index).map_or("-".into(), |figure| published_value(job, &figure.value));
        lines.push(format!(
            "{:<31} {:>16} {:>12} {:>12} {:>14}   {:>14} {:>14}",
            job.name,
            rate(job, result),
            times(result, |side| side.mean_us),
            times(result, |side| side.p9995_us),
            raw.map_or("-".into(), |raw| rate(job, raw)),
            figure(0),
            figure(1),
        ));
    }
    lines.join("\n") + "\n"
}

/// What every column means, and what each side promises.
pub(super) fn notes(report: &Report, suite: &Suite) -> String {
    format!(
        "K: thousands of operations a second. Mixed: reads, then writes.\n\
         Gabion, here: {} on {} file drives of {}, by NBD on a Unix socket; {}, {} s a job, scaled down.\n\
         \x20 Every read is verified against its checksum; parity and log are on; flushes reach the files. The volume was\n\
         \x20 written from end to end before the 4k jobs, and again before the 1M jobs.\n\
         raw file, here: one plain file of the same file system, direct I/O: no parity, no checksums.\n\
         {} (16 VMs, figures of the document): {}.\n\
         \x20 Other hardware altogether: the columns show the form of the document, not a race.\n\
         machine: {}",
        report.scheme,
        report.drives,
        api::Size(report.drive_bytes),
        report.runner,
        report.seconds,
        published(suite).iter().map(|of| of.system.as_str()).collect::<Vec<_>>().join(", "),
        suite.source,
        report.machine
    )
}

/// A job's rate as the document gives it.
pub(super) fn rate(job: &Job, result: &JobResult) -> String {
    join(result.figures().map(|side| {
        if job.is_bandwidth() {
            format!("{:.2} GB/s", side.bytes_per_s / 1e9)
        } else {
            thousands(side.iops / 1000.0)
        }
    }))
}

fn thousands(value: f64) -> String {
    if value < 100.0 { format!("{value:.1} K") } else { format!("{value:.0} K") }
}

fn times(result: &JobResult, pick: impl Fn(&DirectionFigures) -> f64) -> String {
    join(result.figures().map(|side| format!("{:.0}", pick(side))))
}

fn published_value(job: &Job, values: &[f64]) -> String {
    let unit = if job.is_bandwidth() { " GB/s" } else { " K" };
    format!("{}{unit}", join(values.iter().map(|value| format!("{value}"))))
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(" / ")
}
