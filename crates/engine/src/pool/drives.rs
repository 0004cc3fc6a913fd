//! Looking at a drive: what, of ours, is on it.

use format::{DriveId, PoolId};

use super::DriveSource;
use super::superblocks::{OnDrive, read_superblocks};

/// What a drive holds, as far as pools go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundOnDrive {
    /// A drive of this pool.
    Pool {
        /// The pool.
        pool: PoolId,
        /// Its name.
        name: String,
        /// Which drive of it this is.
        drive: DriveId,
        /// How many drives the pool has.
        drives: usize,
    },
    /// A pool's drive whose superblocks are damaged.
    Damaged,
    /// A pool of another format version.
    OtherVersion(u32),
    /// No pool, or unreadable.
    Nothing,
}

/// Looks whether a drive belongs to a pool. Runs on a reactor.
pub async fn identify(source: &dyn DriveSource) -> FoundOnDrive {
    match read_superblocks(&*source.open()).await {
        OnDrive::Superblock(superblock, drive) => FoundOnDrive::Pool {
            pool: superblock.pool,
            name: superblock.name.clone(),
            drive,
            drives: superblock.drives.len(),
        },
        OnDrive::Damaged => FoundOnDrive::Damaged,
        OnDrive::OtherVersion(version) => FoundOnDrive::OtherVersion(version),
        OnDrive::Nothing | OnDrive::Unreadable(_) => FoundOnDrive::Nothing,
    }
}
