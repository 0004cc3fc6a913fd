//! What `bench vhost` measured, for people.

use bench::vhost::{Line, Share};

/// Characters of a job's name.
const JOB: usize = 35;
/// Characters of a back end's name: the end of it.
const SYSTEM: usize = 20;

/// The titles above the lines.
pub(crate) fn line_header() -> String {
    format!(
        "{:<JOB$} {:<SYSTEM$} {:>10} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6}",
        "job", "back end", "IOPS", "GB/s", "mean us", "p50", "p99", "p99.9", "p99.99", "cores", "ratio"
    )
}

/// One line: a job on a back end.
pub(crate) fn line(line: &Line) -> String {
    let figures = &line.median;
    format!(
        "{:<JOB$} {:<SYSTEM$} {:>10.0} {:>7.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>6} {:>6}",
        line.job,
        end_of(&line.system),
        figures.iops,
        figures.bytes_per_s / 1e9,
        figures.mean_us,
        figures.p50_us,
        figures.p99_us,
        figures.p999_us,
        figures.p9999_us,
        maybe(figures.cores, 2),
        maybe(line.first_is_times, 2),
    )
}

/// Processor time at parts of the peak.
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
            end_of(&share.system),
            figures.iops,
            maybe(figures.cores, 4),
            maybe(share.cores_per_100k, 3),
            figures.mean_us,
            figures.p50_us,
            figures.p99_us,
        );
    }
    text
}

fn maybe(figure: Option<f64>, digits: usize) -> String {
    figure.map_or_else(|| "-".into(), |figure| format!("{figure:.digits$}"))
}

/// The end of a name, which tells sockets apart.
fn end_of(name: &str) -> String {
    let skip = name.chars().count().saturating_sub(SYSTEM);
    name.chars().skip(skip).collect()
}
