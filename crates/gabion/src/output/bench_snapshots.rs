//! What `bench snapshots` measured, for people.

use bench::snapshots::Snapshots;

/// All of it.
pub(crate) fn snapshots_measured(found: &Snapshots) -> String {
    let (rates, pause) = (&found.rates, &found.pause);
    let mut lines = vec![
        format!(
            "taken one after the other, {} blocks overwritten between them:  {:.0} a second, p50 {:.1} us, p99 {:.1} us",
            rates.changed_blocks, rates.taken_per_s, rates.take_p50_us, rates.take_p99_us
        ),
        format!(
            "{} of them deleted, oldest first:  {:.0} answered and {:.0} gone a second",
            rates.snapshots, rates.deleted_per_s, rates.gone_per_s
        ),
        format!(
            "no write of a busy volume ({} under way, {:.0} a second) ended for:  median {:.1} us, p99 {:.1} us, longest {:.1} us while one was taken",
            pause.queue_depth, pause.writes_per_s, pause.with_p50_us, pause.with_p99_us, pause.with_max_us
        ),
        format!(
            "  the same without a snapshot:  median {:.1} us, p99 {:.1} us, longest {:.1} us",
            pause.without_p50_us, pause.without_p99_us, pause.without_max_us
        ),
        String::new(),
        format!("{:<40} {:>6} {:>10} {:>13}", "4 KiB random read through", "depth", "IOPS", "times longer"),
    ];
    lines.extend(found.depths.iter().map(|line| {
        let through = match line.snapshots {
            0 => "no snapshot".to_owned(),
            1 => "1 snapshot".to_owned(),
            many => format!("{many} snapshots"),
        };
        format!("{through:<40} {:>6} {:>10.0} {:>13.2}", line.queue_depth, line.iops, line.times_longer)
    }));
    lines.join("\n")
}
