//! The result of the quickstart: the table of the reference document, with the measured results
//! first.

use bench::{DirectionFigures, Job, JobResult, Published, Suite};
use serde::Serialize;

use super::objects::ObjectRates;

/// All results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) suite: String,
    pub(super) machine: String,
    /// Load generator.
    pub(super) runner: String,
    /// Bytes of each drive file.
    pub(super) drive_bytes: u64,
    pub(super) drives: u16,
    pub(super) scheme: String,
    pub(super) seconds: u64,
    /// Results of the same jobs on a plain file of the same file system, without protection.
    pub(super) raw: Vec<JobResult>,
    pub(super) gabion: Vec<JobResult>,
    /// One object over S3.
    pub(super) objects: ObjectRates,
}

/// Returns the published results for the total over all instances.
fn published(suite: &Suite) -> Vec<&Published> {
    suite.published_for(suite.instances.first().copied().unwrap_or(1)).collect()
}

/// Formats the table of results.
pub(super) fn table(report: &Report, suite: &Suite) -> String {
    let published = published(suite);
    let mut lines = vec![format!(
        "{:<31} {:>16} {:>12} {:>12} {:>14}   {:>14} {:>14}",
        "",
        "Gabion",
        "mean us",
        "99.95 % us",
        "plain file",
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
    let objects = &report.objects;
    lines.push(format!(
        "object of {} over S3, by {}: PUT {:.0} MB/s, GET {:.0} MB/s",
        api::Size(objects.bytes),
        objects.client,
        objects.put_bytes_per_s / 1e6,
        objects.get_bytes_per_s / 1e6
    ));
    lines.join("\n") + "\n"
}

/// Explains the columns and the guarantees of each side.
pub(super) fn notes(report: &Report, suite: &Suite) -> String {
    format!(
        "K: thousands of operations per second. Mixed jobs: reads / writes.\n\
         Gabion: {} on {} file drives of {} on this host, over NBD on a Unix socket; {}, {} s per job, scaled down.\n\
         \x20 Every read is verified by checksum, with parity and log; flushes reach the files. The volume was filled\n\
         \x20 before the 4k jobs, and again before the 1M jobs.\n\
         plain file: one file of the same file system on this host, direct I/O, no parity, no checksums.\n\
         {} (16 VMs, published results): {}.\n\
         \x20 Measured on different hardware: not comparable with the results of this host.\n\
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

/// Formats a job's rate in the unit of the document.
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
