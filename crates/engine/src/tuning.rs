//! Engine settings.

use crate::repair::RepairLimits;

/// Engine settings that an operator may change. The defaults suit most machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Memory for the map of all shards, in bytes.
    pub map_bytes: u64,
    /// Records in flight for each shard. Further requests are gathered into the next record.
    pub records_in_flight: usize,
    /// Bytes of log between two checkpoints of a shard. Bounds the log that a recovery reads.
    pub checkpoint_bytes: u64,
    /// The initial speed limits of rebuilds.
    pub repair: RepairLimits,
    /// Retire a drive after read errors in this many zones within 24 h, or in a quarter of its
    /// zones if that is fewer. 0 to never retire a drive.
    pub retire_after: u32,
    /// Target mean latency under contention, in percent of the uncontended latency. 0 for no
    /// target.
    pub slowdown: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            map_bytes: 1 << 30,
            records_in_flight: 4,
            checkpoint_bytes: 1 << 30,
            repair: RepairLimits::default(),
            retire_after: 32,
            slowdown: 200,
        }
    }
}
