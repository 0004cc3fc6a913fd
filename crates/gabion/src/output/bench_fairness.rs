//! Formatting of `bench fairness`.

use bench::fairness::Fairness;

/// Formats the result.
pub(crate) fn fairness(result: &Fairness) -> String {
    let mut lines = vec![format!(
        "{:<7} {:<7} {:>11} {:>11} {:>11} {:>11} {:>6}  {:>10} {:>10}",
        "quiet",
        "busy",
        "p50 alone",
        "p99 alone",
        "p50 cont.",
        "p99 cont.",
        "ratio",
        "busy alone",
        "busy cont."
    )];
    lines.extend(result.pairs.iter().map(|pair| {
        format!(
            "{:<7} {:<7} {:>8.1} us {:>8.1} us {:>8.1} us {:>8.1} us {:>6.2}  {:>8.0}/s {:>8.0}/s",
            super::word(&pair.quiet),
            super::word(&pair.busy),
            pair.alone_p50_us,
            pair.alone_p99_us,
            pair.contended_p50_us,
            pair.contended_p99_us,
            pair.times_p99,
            pair.busy_alone_per_s,
            pair.busy_contended_per_s,
        )
    }));
    lines.push(format!(
        "quiet: operations of 4 KiB, one at a time; busy: operations of another volume, {} in flight; cont.: under contention;\n\
         ratio: p99 under contention to p99 alone, median of the rounds",
        result.depth
    ));
    lines.join("\n")
}
