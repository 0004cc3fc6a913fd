//! Pools.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::drive::PoolDrive;
use super::scrub::Scrub;
use crate::error::Error;

/// Whether a pool is in service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// In service.
    Open,
    /// Something is being done to it: see the operations.
    Changing,
    /// Closed on request; it is not opened at start.
    Closed,
    /// It could not be opened.
    Unavailable,
}

/// How well a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Everything is as it should be.
    Healthy,
    /// Everything is protected, and a drive errs in so many places that it is to go.
    DriveFailing,
    /// Data is served in full, with less protection than the scheme gives, and what is missing is being written to other drives.
    Rebuilding,
    /// Data is served in full, with less protection than the scheme gives.
    Degraded,
    /// Some data is lost: reads of it fail until it is overwritten. Everything else is served.
    DataLost,
    /// Writes are refused, or nothing is served.
    Failed,
    /// The pool is not open: nobody has looked.
    Unknown,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// What is wrong, and what is at risk.
    pub message: String,
    /// What to do.
    pub action: String,
}

/// Bytes of a volume or snapshot that are lost: reads of them fail until they are overwritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LostRange {
    /// Name of the volume or snapshot; empty for the pool's own catalogue and event log.
    pub volume: String,
    /// Byte at which they begin.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
}

/// How full a pool is, in bytes of user data unless said otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Space {
    /// Bytes of the drives in use that hold or may hold data and parity.
    pub raw: u64,
    /// User data that fits into the pool, about: what is kept back for the pool's own records is not in it.
    pub capacity: u64,
    /// User data that can still be written.
    pub free: u64,
    /// Kept back so that a full pool can still trim, delete and make checkpoints.
    pub reserve: u64,
    /// Room that is kept for what thick volumes do not store yet.
    #[serde(default)]
    pub promised: u64,
    /// Data that volumes store.
    pub stored: u64,
    /// Sizes of all volumes together.
    pub provisioned: u64,
    /// Volumes.
    pub volumes: u64,
}

/// What the last opening of a pool found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OpenReport {
    /// When that was.
    pub at: u64,
    /// How long it took.
    pub seconds: f64,
    /// True if the pool had been closed in order.
    pub clean: bool,
    /// Records of the log that were replayed.
    pub replayed: u64,
    /// Records at the log's end that a crash had cut off, and that nobody had been promised.
    pub dropped: u64,
    /// Blocks of the last rows that a crash had left unwritten, and that were completed.
    pub completed: u64,
    /// Drives that were not there.
    pub missing: Vec<String>,
    /// Drives that were there again.
    #[serde(default)]
    pub returned: Vec<String>,
    /// Drives that held an old copy of themselves: nothing on them was believed, and all of it is rebuilt.
    #[serde(default)]
    pub stale: Vec<String>,
    /// Drives that are smaller than when they joined the pool, with both sizes: they count as missing.
    #[serde(default)]
    pub shrunk: Vec<String>,
    /// Copies of other drives of the pool: they are not used.
    #[serde(default)]
    pub copies: Vec<String>,
    /// Drives of which one copy of the superblock was damaged, and was rewritten.
    #[serde(default)]
    pub damaged_superblocks: Vec<String>,
    /// True if every drive showed a damaged copy of its superblock: a newer state than the one that was opened may have been lost.
    #[serde(default)]
    pub uncertain: bool,
}

/// What is done about columns that are missing, or lie on drives that are being emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepairState {
    /// Nothing is missing.
    Idle,
    /// They are being written.
    Working,
    /// There is something to write, and it is told not to.
    Paused,
    /// Another drive is needed.
    NeedsDrive,
    /// The drives that are left have too little free space.
    NeedsSpace,
    /// More is missing than the scheme bears.
    Lost,
}

/// How far a pool is with columns that are missing, or lie on drives that are being emptied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Repair {
    /// What is being done.
    pub state: RepairState,
    /// Bytes that are still to be written.
    pub left: u64,
    /// Bytes written since it began.
    pub done: u64,
    /// How much of both together is done.
    pub percent: u64,
    /// Bytes written a second, lately.
    pub bytes_per_second: u64,
    /// How long the rest takes at that speed.
    pub seconds_left: Option<u64>,
    /// Rows of which a part could not be computed, because others were damaged as well.
    pub damaged_rows: u64,
    /// It is told not to go on.
    pub paused: bool,
    /// Bytes that it may write a second; 0 for as many as the drives take.
    pub limit: u64,
}

/// How long reads and writes of volumes took in the last 10 to 20 seconds, to an eighth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsersLately {
    /// How many there were.
    pub operations: u64,
    /// What half of them took at most, in microseconds.
    pub p50_us: u64,
    /// What 99 of 100 took at most, in microseconds.
    pub p99_us: u64,
}

/// How fast repair may go, until the pool is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitRepair {
    /// Whether it does nothing; as it was, if absent.
    #[serde(default)]
    pub paused: Option<bool>,
    /// Bytes that it may write a second, 0 for as many as the drives take; as it was, if absent. While volumes are used it does
    /// as much as users hardly notice, and takes a quarter of the drives' time at least, within what stands here.
    #[serde(default)]
    pub bytes_per_second: Option<u64>,
}

/// What was counted since the pool was opened. Blocks are of 4096 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// Blocks that volumes wrote.
    pub user_blocks: u64,
    /// Blocks of the map.
    pub map_blocks: u64,
    /// Blocks that were moved.
    pub moved_blocks: u64,
    /// Blocks of record headers.
    pub header_blocks: u64,
    /// Blocks left empty to complete rows.
    pub padding_blocks: u64,
    /// Blocks of parity and mirror copies.
    pub parity_blocks: u64,
    /// Records.
    pub records: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Those that could not be made because the pool had no space left for them: drives are missing that should be brought back, or a
    /// drive should be added.
    #[serde(default)]
    pub checkpoints_refused: u64,
    /// Blocks that were read from the other columns although their own drive is in use.
    pub repaired_blocks: u64,
    /// Bytes of the map in memory.
    pub map_bytes: u64,
    /// Those that differ from what is stored.
    pub map_dirty_bytes: u64,
    /// Blocks of the catalogue, of the event log, of parts that were zeroed, and blocks that were healed.
    #[serde(default)]
    pub freeing_blocks: u64,
    /// Blocks written to the drives, of all these kinds, for each block that volumes wrote; absent while they wrote nothing.
    #[serde(default)]
    pub write_amplification: Option<f64>,
    /// Segments that take no more, by how full they are of what lives: empty ones that wait for a checkpoint, then those up to a tenth
    /// full, and so on.
    #[serde(default)]
    pub segments_by_fullness: Vec<u64>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: Option<String>,
    /// Whether it is in service.
    pub state: PoolState,
    /// What is being done to it.
    pub doing: Option<String>,
    /// How well it is.
    pub health: Health,
    /// What is wrong, worst first.
    pub problems: Vec<Problem>,
    /// Protection of new data, `k+m`.
    pub scheme: Option<String>,
    /// Shards: on how many cores it can run at once.
    pub shards: Option<u64>,
    /// How full it is.
    pub space: Option<Space>,
    /// How far it is with what drives that were lost, came back or leave held.
    #[serde(default)]
    pub repair: Option<Repair>,
    /// How far it is with reading everything and comparing it.
    #[serde(default)]
    pub scrub: Option<Scrub>,
    /// How long what volumes' users asked for took while one of these was at work; absent if nothing was asked for in the last 10 to 20 seconds.
    #[serde(default)]
    pub users: Option<UsersLately>,
    /// Its drives.
    pub drives: Vec<PoolDrive>,
    /// Data that is lost, by volume.
    #[serde(default)]
    pub lost: Vec<LostRange>,
    /// What the last opening found.
    pub opened: Option<OpenReport>,
    /// What was counted since then.
    pub counters: Option<Counters>,
    /// Why it is unavailable.
    pub error: Option<Error>,
}

/// Files to be made and used as drives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileDrives {
    /// The directory, an absolute path. The files are called `POOL-0.drive` and so on.
    pub directory: String,
    /// Bytes of each.
    pub size: u64,
    /// How many.
    pub count: u16,
}

/// A pool to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// Its name: letters, digits, `.`, `_` and `-`, at most 63.
    pub name: String,
    /// Protection, `k+m`. This or `level`.
    #[serde(default)]
    pub scheme: Option<String>,
    /// Protection as a RAID level: 0, 1, 5, 6 or 10. This or `scheme`.
    #[serde(default)]
    pub level: Option<String>,
    /// Block devices and files, by absolute path. These or `files`.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Files to be made.
    #[serde(default)]
    pub files: Option<FileDrives>,
    /// Destroy what is on the drives.
    #[serde(default)]
    pub wipe: bool,
    /// On how many cores it can ever run at once; by the daemon's threads if absent.
    #[serde(default)]
    pub shards: Option<u16>,
}

/// A pool to be opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenPool {
    /// Its drives, by absolute path; those that are missing among them are looked for, unless `degraded` is set. Where they were
    /// last found, and wherever else they are, if absent.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Open it although drives are missing. When they come back, what they missed is written to them.
    #[serde(default)]
    pub degraded: bool,
    /// Open it although this host has used a newer state, which is on drives that are not there. What was written since is lost.
    #[serde(default)]
    pub accept_stale: bool,
}

/// A pool to be closed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClosePool {
    /// Disconnect the clients of its exports.
    #[serde(default)]
    pub force: bool,
    /// Also forget where its drives are, and its exports.
    #[serde(default)]
    pub forget: bool,
}
