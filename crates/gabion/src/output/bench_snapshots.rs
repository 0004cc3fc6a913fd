//! Formatting of `bench snapshots`.

use bench::snapshots::Snapshots;

/// Formats the result.
pub(crate) fn snapshots_result(result: &Snapshots) -> String {
    let (rates, pause) = (&result.rates, &result.pause);
    let mut lines = vec![
        format!(
            "creation, one at a time, {} blocks overwritten between two:  {:.0}/s, p50 {:.1} us, p99 {:.1} us",
            rates.changed_blocks, rates.taken_per_s, rates.take_p50_us, rates.take_p99_us
        ),
        format!(
            "deletion of {}, oldest first:  {:.0}/s acknowledged, {:.0}/s completed",
            rates.snapshots, rates.deleted_per_s, rates.gone_per_s
        ),
        format!(
            "longest time without a completed write of a busy volume ({} in flight, {:.0}/s):\n  \
             while a snapshot is taken:  median {:.1} us, p99 {:.1} us, maximum {:.1} us",
            pause.queue_depth, pause.writes_per_s, pause.with_p50_us, pause.with_p99_us, pause.with_max_us
        ),
        format!(
            "  without a snapshot:  median {:.1} us, p99 {:.1} us, maximum {:.1} us",
            pause.without_p50_us, pause.without_p99_us, pause.without_max_us
        ),
        String::new(),
        format!("{:<40} {:>6} {:>10} {:>13}", "4 KiB random read through", "depth", "IOPS", "latency ratio"),
    ];
    lines.extend(result.depths.iter().map(|line| {
        let through = match line.snapshots {
            0 => "no snapshot".to_owned(),
            1 => "1 snapshot".to_owned(),
            many => format!("{many} snapshots"),
        };
        format!("{through:<40} {:>6} {:>10.0} {:>13.2}", line.queue_depth, line.iops, line.times_longer)
    }));
    lines.join("\n")
}
