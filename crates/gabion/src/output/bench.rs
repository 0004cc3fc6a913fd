//! Formatting of `bench engine` and `bench codec`.

use bench::Sample;

/// Returns the column headers.
pub(crate) fn sample_header() -> String {
    format!(
        "{:<34} {:<6} {:>9} {:>5} {:>11} {:>9} {:>10} {:>10} {:>10}",
        "job", "scheme", "bytes", "depth", "IOPS", "GB/s", "mean us", "p50 us", "p99 us"
    )
}

/// Formats the result of a job.
pub(crate) fn sample(sample: &Sample) -> String {
    format!(
        "{:<34} {:<6} {:>9} {:>5} {:>11.0} {:>9.2} {:>10.2} {:>10.2} {:>10.2}",
        sample.op,
        sample.scheme,
        sample.block_bytes,
        sample.queue_depth,
        sample.iops,
        sample.bytes_per_s / 1e9,
        sample.mean_us,
        sample.p50_us,
        sample.p99_us
    )
}
