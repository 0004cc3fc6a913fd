//! What `bench map` and `bench recovery` measured, for people.

use bench::scale::{MapCost, Recovery};

use api::Size;

/// A large map.
pub(crate) fn map_cost(cost: &MapCost) -> String {
    format!(
        "{} blocks of 4 KiB anywhere in {}, {} under way:  {:.0} a second, p50 {:.1} us, p99.9 {:.1} us
map: {} of memory used, {} wanted, {} for all of it;  {:.2} blocks of it written for each of users', {} checkpoints
no write ended for {:.2} ms at most, of which the thread computed {:.2} ms at most
read back, one at a time:  {:.0} a second",
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

/// An opening after a crash.
pub(crate) fn recovery(recovery: &Recovery) -> String {
    format!(
        "{} written in blocks of 4 KiB since the last checkpoint, {} records:  open again after {:.2} s",
        Size(recovery.log_bytes),
        recovery.records,
        recovery.seconds,
    )
}
