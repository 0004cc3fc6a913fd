//! Pools.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::drive::PoolDrive;
use super::scrub::Scrub;
use crate::Error;

/// State of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// In service.
    Open,
    /// An operation is changing it.
    Changing,
    /// Closed on request; it is not opened when the daemon starts.
    Closed,
    /// The pool could not be opened.
    Unavailable,
}

/// Health of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// All data is fully protected.
    Healthy,
    /// All data is fully protected; a drive has so many read errors that it must be replaced.
    DriveFailing,
    /// All data is served with reduced redundancy; missing columns are being rebuilt.
    Rebuilding,
    /// All data is served with reduced redundancy.
    Degraded,
    /// Some data is lost: reads of it fail until it is overwritten. All other data is served.
    DataLost,
    /// Writes are refused, or nothing is served.
    Failed,
    /// The pool is not open, so its health is not known.
    Unknown,
}

/// A problem of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// The problem, and the data at risk.
    pub message: String,
    /// The action that solves it.
    pub action: String,
}

/// A lost range of a volume or snapshot: reads of it fail until it is overwritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostRange {
    /// Name of the volume or snapshot; empty for the pool's own catalogue and event log.
    pub volume: String,
    /// First byte.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Space of a pool, in bytes of user data unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolSpace {
    /// Bytes of the drives in use that can hold data and parity.
    pub raw: u64,
    /// Approximate amount of user data that fits into the pool, without the pool's own reserve.
    pub capacity: u64,
    /// User data that can still be written.
    pub free: u64,
    /// Reserve with which a full pool can still trim, delete and write checkpoints.
    pub system_reserve: u64,
    /// Space reserved for thick volumes and not yet written.
    #[serde(default)]
    pub reserved: u64,
    /// Data that volumes, snapshots and the objects of S3 store.
    pub stored: u64,
    /// Sum of the sizes of all volumes and snapshots.
    pub provisioned: u64,
    /// Number of volumes and snapshots.
    pub volumes: u64,
}

/// Findings of the last open of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OpenReport {
    /// Time of the open.
    pub time: u64,
    /// Duration of the open.
    pub seconds: f64,
    /// True if the pool had been closed cleanly.
    pub clean: bool,
    /// Log records that were replayed.
    pub replayed: u64,
    /// Incomplete records at the end of the log, never acknowledged, that were discarded.
    pub discarded: u64,
    /// Blocks of the last rows that a crash had left unwritten, and that were completed.
    pub completed: u64,
    /// Drives that were missing.
    pub missing: Vec<String>,
    /// Drives that had been missing before and were present again.
    #[serde(default)]
    pub returned: Vec<String>,
    /// Drives with an outdated copy of their contents. Their data was not used and is rebuilt.
    #[serde(default)]
    pub stale: Vec<String>,
    /// Drives that are smaller than when they joined the pool, with both sizes. They count as
    /// missing.
    #[serde(default)]
    pub shrunk: Vec<String>,
    /// Copies of other drives of the pool. They are not used.
    #[serde(default)]
    pub copies: Vec<String>,
    /// Drives with one damaged copy of the superblock, which was rewritten.
    #[serde(default)]
    pub damaged_superblocks: Vec<String>,
    /// True if every drive had a damaged superblock copy: a state newer than the opened one may be
    /// lost.
    #[serde(default)]
    pub uncertain: bool,
}

/// State of the rebuild of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RebuildState {
    /// No columns are missing.
    Idle,
    /// Missing columns are being written to other drives.
    Working,
    /// Columns are missing, and the rebuild is paused.
    Paused,
    /// Columns are missing, and the rebuild needs another drive.
    NeedsDrive,
    /// Columns are missing, and the remaining drives have too little free space.
    NeedsSpace,
    /// More columns are missing than the scheme tolerates.
    Lost,
}

/// The rebuild of a pool: it writes columns that are missing, or are on drives being removed, to
/// other drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Rebuild {
    /// State of the rebuild.
    pub state: RebuildState,
    /// Bytes still to be written.
    pub remaining: u64,
    /// Bytes written since it began.
    pub done: u64,
    /// Share of the work that is done.
    pub percent: u64,
    /// Current speed.
    pub bytes_per_second: u64,
    /// Estimated time to its end at the current speed.
    pub seconds_left: Option<u64>,
    /// Rows with a column that cannot be reconstructed because other columns are damaged.
    pub damaged_rows: u64,
    /// True if it is paused.
    pub paused: bool,
    /// Limit of its speed in bytes per second; 0 for no limit.
    pub rate_limit: u64,
}

/// Latency of reads and writes of volumes over the last 10 to 20 seconds, accurate to 12.5 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RecentLatency {
    /// Number of reads and writes.
    pub operations: u64,
    /// Median in microseconds.
    pub p50_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
}

/// Changes to the rebuild of a pool. They apply until the pool is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeRebuild {
    /// Pause or resume; unchanged if absent.
    #[serde(default)]
    pub paused: Option<bool>,
    /// Limit in bytes per second, 0 for no limit; unchanged if absent. Under load the rebuild
    /// yields to client I/O, but keeps at least 25 % of drive time within this limit.
    #[serde(default)]
    pub rate_limit: Option<u64>,
}

/// Counters since the pool was opened. Blocks have 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolCounters {
    /// Blocks that volumes wrote.
    pub user_blocks: u64,
    /// Blocks of the map.
    pub map_blocks: u64,
    /// Blocks moved by the cleaner.
    pub moved_blocks: u64,
    /// Blocks of record headers.
    pub header_blocks: u64,
    /// Blocks written empty to complete rows.
    pub padding_blocks: u64,
    /// Blocks of parity and mirror copies.
    pub parity_blocks: u64,
    /// Log records.
    pub records: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Checkpoints that failed for lack of space: return missing drives, or add a drive.
    #[serde(default)]
    pub checkpoints_refused: u64,
    /// Damaged blocks on drives in use that were reconstructed from other columns.
    pub repaired_blocks: u64,
    /// Bytes of the map in memory.
    pub map_bytes: u64,
    /// Bytes of the map in memory that are not yet written to the drives.
    pub map_dirty_bytes: u64,
    /// Blocks of the catalogue, of the event log, of zeroed ranges, and blocks rewritten after
    /// damage.
    #[serde(default)]
    pub freeing_blocks: u64,
    /// Blocks written to the drives, of all kinds above, for each block that volumes wrote; absent
    /// while volumes have written nothing.
    #[serde(default)]
    pub write_amplification: Option<f64>,
    /// Full segments by their share of live data: empty ones that wait for a checkpoint first, then
    /// up to 10 %, up to 20 %, and so on.
    #[serde(default)]
    pub segments_by_fullness: Vec<u64>,
    /// Writes in progress at this moment, by the event that they wait for.
    #[serde(default)]
    pub write_waits: Vec<WriteWaits>,
}

/// Writes that wait for the same event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WriteWaits {
    /// Event: `admission`, `snapshot`, `overlapping-write`, `map-memory`, `cleaner-debt`,
    /// `checkpoint`, `cleaner`, `other-shards`, `segment-opening`, `record-slot`, `drives` or
    /// `earlier-record`.
    pub event: String,
    /// Number of writes; a long write counts once for each of its parts.
    pub writes: u64,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Name of the pool.
    pub name: String,
    /// Identifier of the pool.
    pub id: Option<String>,
    /// State of the pool.
    pub state: PoolState,
    /// The change in progress, while the state is `changing`.
    pub activity: Option<String>,
    /// Health of the pool.
    pub health: Health,
    /// Problems, most severe first.
    pub problems: Vec<Problem>,
    /// Protection of new data, `k+m`.
    pub scheme: Option<String>,
    /// Number of shards: the most cores that the pool can use.
    pub shards: Option<u64>,
    /// Space of the pool.
    pub space: Option<PoolSpace>,
    /// Progress of the rebuild.
    #[serde(default)]
    pub rebuild: Option<Rebuild>,
    /// Progress of scrubbing.
    #[serde(default)]
    pub scrub: Option<Scrub>,
    /// Latency of client I/O while a rebuild or scrub runs; absent if there was no I/O in the last
    /// 10 to 20 seconds.
    #[serde(default)]
    pub latency: Option<RecentLatency>,
    /// Drives of the pool.
    pub drives: Vec<PoolDrive>,
    /// Lost data, by volume.
    #[serde(default)]
    pub lost: Vec<LostRange>,
    /// Findings of the last open.
    pub opened: Option<OpenReport>,
    /// Counters since the last open.
    pub counters: Option<PoolCounters>,
    /// Reason why the pool is unavailable.
    pub error: Option<Error>,
}

/// Files to be created and used as drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileDrives {
    /// Absolute path of the directory. The files are named `POOL-0.drive` and so on.
    pub directory: String,
    /// Size of each file in bytes.
    pub size: u64,
    /// Number of files.
    pub count: u16,
}

/// A request to create a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Name: up to 63 letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Protection, `k+m`. Either this or `level`.
    #[serde(default)]
    pub scheme: Option<String>,
    /// Protection as a RAID level: 0, 1, 5, 6 or 10. Either this or `scheme`.
    #[serde(default)]
    pub level: Option<String>,
    /// Absolute paths of block devices and files. Either this or `files`.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Files to be created as drives.
    #[serde(default)]
    pub files: Option<FileDrives>,
    /// Erase existing data on the drives.
    #[serde(default)]
    pub wipe: bool,
    /// Number of shards: the most cores that the pool can use, fixed at creation. Derived from the
    /// daemon's reactor threads and the size of the drives if absent.
    #[serde(default)]
    pub shards: Option<u16>,
}

/// A request to open a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenPool {
    /// Absolute paths of its drives. If empty, the daemon looks at their last paths and then at all
    /// drives of the host. Unless `degraded` is set, the daemon also looks for drives that are not
    /// listed.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Open the pool although drives are missing. Writes that they miss are rebuilt when they
    /// return.
    #[serde(default)]
    pub degraded: bool,
    /// Open the pool although this host has used a newer state, which is on absent drives. Data
    /// written after the opened state is lost.
    #[serde(default)]
    pub accept_stale: bool,
}

/// A request to close a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClosePool {
    /// Disconnect the clients of its exports.
    #[serde(default)]
    pub force: bool,
    /// Also delete the daemon's record of the pool: the paths of its drives, and its exports.
    #[serde(default)]
    pub forget: bool,
}
