//! What `bench fairness` measured, for people.

use bench::fairness::Fairness;

/// All of it.
pub(crate) fn fairness(found: &Fairness) -> String {
    let mut lines = vec![format!(
        "{:<7} {:<7} {:>11} {:>11} {:>11} {:>11} {:>6}  {:>10} {:>10}",
        "of one",
        "beside",
        "p50 alone",
        "p99 alone",
        "p50 beside",
        "p99 beside",
        "times",
        "busy alone",
        "beside"
    )];
    lines.extend(found.pairs.iter().map(|pair| {
        format!(
            "{:<7} {:<7} {:>8.1} us {:>8.1} us {:>8.1} us {:>8.1} us {:>6.2}  {:>8.0}/s {:>8.0}/s",
            super::word(&pair.quiet),
            super::word(&pair.busy),
            pair.alone_p50_us,
            pair.alone_p99_us,
            pair.beside_p50_us,
            pair.beside_p99_us,
            pair.times_p99,
            pair.busy_alone_per_s,
            pair.busy_beside_per_s,
        )
    }));
    lines.push(format!(
        "of one: one operation of 4 KiB at a time; beside: {} of another volume under way; times: p99 beside to p99 alone, of the same round",
        found.depth
    ));
    lines.join("\n")
}
