//! Formatting of `bench churn`.

use bench::churn::{Churn, ChurnWindow};
use bench::draw::Distribution;

/// Returns the column headers.
pub(crate) fn churn_header() -> String {
    format!(
        "{:>10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>6} {:>8} {:>8} {:>7} {:>7}",
        "overwrites",
        "IOPS",
        "p50 us",
        "p99",
        "p99.9",
        "p99.99",
        "pause ms",
        "cleaning",
        "map",
        "headers",
        "padding",
        "parity",
        "total"
    )
}

/// Formats a window of the load. The first column is `name`, or else the number of overwrites by
/// the end of the window.
pub(crate) fn churn_window(name: Option<&str>, window: &ChurnWindow) -> String {
    let number = format!("{:.2}", window.written);
    let written = &window.amplification;
    format!(
        "{:>10} {:>9.0} {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>9.1} {:>9.3} {:>6.3} {:>8.3} {:>8.3} {:>7.3} {:>7.3}",
        name.unwrap_or(&number),
        window.iops,
        window.p50_us,
        window.p99_us,
        window.p999_us,
        window.p9999_us,
        window.longest_pause_ms,
        written.cleaning(),
        written.map,
        written.headers,
        written.padding,
        written.parity + written.other,
        written.total(),
    )
}

/// Formats the result.
pub(crate) fn churn(churn: &Churn) -> String {
    let (fresh, steady) = (&churn.fresh, &churn.steady);
    let distribution = match churn.distribution {
        Distribution::Uniform => "uniform",
        Distribution::Zipf => "zipf 0.99",
    };
    let cleaning = steady.amplification.cleaning();
    let settled = if churn.settled { "" } else { "\nNot in a steady state yet: use more --overwrites." };
    let segments: Vec<String> = churn.segments.iter().map(u64::to_string).collect();
    format!(
        "\n{}\n{}\n\n\
         {distribution}, {:.0} % fill: write amplification {cleaning:.3} by cleaning, {:.2} times that of an ideal greedy cleaner\n\
         under a uniform load ({:.3} at this fill, {:.3} at {:.0} % of the raw capacity); {:.3} in total with map, headers,\n\
         padding and parity. p99.9 is {:.1} times that of the new pool. Longest pause: {:.1} ms.\n\
         Segments by live data (none, then tenths): {}.{settled}\n",
        churn_window(Some("new pool"), fresh),
        churn_window(Some("last"), steady),
        churn.fill * 100.0,
        cleaning / churn.greedy,
        churn.greedy,
        churn.greedy_raw,
        churn.raw_fill * 100.0,
        steady.amplification.total(),
        steady.p999_us / fresh.p999_us,
        churn.windows.iter().map(|window| window.longest_pause_ms).fold(0.0, f64::max),
        segments.join(" "),
    )
}
