//! Formatting of `bench vhost` and `bench nvme`.

use bench::Line;
use bench::vhost::Share;

/// Column width of job names.
const JOB: usize = 35;
/// Column width of back-end names; longer names are cut at the start.
const SYSTEM: usize = 20;

/// Returns the column headers. `system`: the kind of the measured systems.
pub(crate) fn line_header(system: &str) -> String {
    format!(
        "{:<JOB$} {:<SYSTEM$} {:>10} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6}",
        "job", system, "IOPS", "GB/s", "mean us", "p50", "p99", "p99.9", "p99.99", "cores", "ratio"
    )
}

/// Formats the result of a job on a back end.
pub(crate) fn line(line: &Line) -> String {
    let figures = &line.median;
    format!(
        "{:<JOB$} {:<SYSTEM$} {:>10.0} {:>7.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>6} {:>6}",
        line.job,
        last_characters(&line.system),
        figures.iops,
        figures.bytes_per_s / 1e9,
        figures.mean_us,
        figures.p50_us,
        figures.p99_us,
        figures.p999_us,
        figures.p9999_us,
        optional(figures.cores, 2),
        optional(line.first_is_times, 2),
    )
}

/// Formats the CPU time at fractions of the peak load.
pub(crate) fn shares(shares: &[Share]) -> String {
    let mut text = format!(
        "\n{:<20} {:<SYSTEM$} {:>10} {:>7} {:>15} {:>8} {:>8} {:>8}\n",
        "load", "back end", "IOPS", "cores", "cores per 100 K", "mean us", "p50", "p99"
    );
    for share in shares {
        let figures = &share.round;
        text += &format!(
            "{:<20} {:<SYSTEM$} {:>10.0} {:>7} {:>15} {:>8.2} {:>8.2} {:>8.2}\n",
            share.load,
            last_characters(&share.system),
            figures.iops,
            optional(figures.cores, 4),
            optional(share.cores_per_100k, 3),
            figures.mean_us,
            figures.p50_us,
            figures.p99_us,
        );
    }
    text
}

fn optional(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".into(), |figure| format!("{figure:.digits$}"))
}

/// Returns the last characters of a name, which distinguish socket paths.
fn last_characters(name: &str) -> String {
    let skip = name.chars().count().saturating_sub(SYSTEM);
    name.chars().skip(skip).collect()
}
