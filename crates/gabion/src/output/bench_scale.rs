//! Formatting of `bench map` and `bench recovery`.

use bench::scale::{MapCost, Recovery};

use api::Size;

/// Formats the result of `bench map`.
pub(crate) fn map_cost(cost: &MapCost) -> String {
    format!(
        "{} random writes of 4 KiB in {}, {} in flight:  {:.0} IOPS, p50 {:.1} us, p99.9 {:.1} us
map: {} of memory used, limit {}, {} for the whole map;  {:.2} map blocks written per user block, {} checkpoints
longest time without a completed write: {:.2} ms; longest CPU time of the thread in such a pause: {:.2} ms
reads, one at a time:  {:.0} IOPS",
        cost.writes,
        Size(cost.volume_bytes),
        cost.queue_depth,
        cost.iops,
        cost.p50_us,
        cost.p999_us,
        Size(cost.map_used_bytes),
        Size(cost.map_bytes),
        Size(cost.map_whole_bytes),
        cost.map_per_write,
        cost.checkpoints,
        cost.longest_pause_ms,
        cost.longest_busy_ms,
        cost.reads_per_s,
    )
}

/// Formats the result of `bench recovery`.
pub(crate) fn recovery(recovery: &Recovery) -> String {
    format!(
        "{} written in blocks of 4 KiB since the last checkpoint, {} records:  opened in {:.2} s",
        Size(recovery.log_bytes),
        recovery.records,
        recovery.seconds,
    )
}
