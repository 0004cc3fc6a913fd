//! One drive by itself: what of ours is on it, and taking it off.

use format::limits::SUPERBLOCK_SLOT;
use format::{DriveId, DriveState, PoolId, Scheme};
use reactor::{Buffer, IoError};

use super::DriveSource;
use super::superblocks::{OnDrive, read_superblocks};
use crate::geometry::SuperblockSlot;

/// What a drive holds, as far as pools go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundOnDrive {
    /// A drive of a pool.
    Pool(Box<PoolOnDrive>),
    /// A pool's drive whose superblocks are damaged.
    Damaged,
    /// A pool of another format version.
    OtherVersion(u32),
    /// No pool.
    Nothing,
    /// It cannot be read.
    Unreadable(IoError),
}

/// What a drive says of its pool. Other drives of the pool may know better: see [`PoolOnDrive::written`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOnDrive {
    /// The pool.
    pub pool: PoolId,
    /// Its name.
    pub name: String,
    /// The scheme of its new data.
    pub scheme: Scheme,
    /// Which drive of it this is.
    pub drive: DriveId,
    /// Opening of the pool and generation within it that this is the state of: the highest of all drives is the newest.
    pub written: (u64, u64),
    /// True if the pool was closed in order.
    pub clean: bool,
    /// Every drive of the pool, by index.
    pub members: Vec<Member>,
}

/// A drive of a pool, as its superblocks say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its identity.
    pub id: DriveId,
    /// The path by which it was last opened.
    pub path: String,
    /// Usable bytes.
    pub size: u64,
    /// Whether it is in use.
    pub state: DriveState,
}

/// Looks whether a drive belongs to a pool. Runs on a reactor.
pub async fn identify(source: &dyn DriveSource) -> FoundOnDrive {
    let (superblock, drive) = match read_superblocks(&*source.open()).await {
        OnDrive::Superblock(found) => (found.superblock, found.drive),
        OnDrive::Damaged => return FoundOnDrive::Damaged,
        OnDrive::OtherVersion(version) => return FoundOnDrive::OtherVersion(version),
        OnDrive::Nothing => return FoundOnDrive::Nothing,
        OnDrive::Unreadable(error) => return FoundOnDrive::Unreadable(error),
    };
    let member = |record: &format::DriveRecord| Member {
        id: record.id,
        path: record.path.clone(),
        size: record.size,
        state: record.state,
    };
    FoundOnDrive::Pool(Box::new(PoolOnDrive {
        pool: superblock.pool,
        scheme: superblock.scheme,
        drive,
        written: (superblock.epoch().epoch, superblock.generation.get()),
        clean: superblock.clean,
        members: superblock.drives.iter().map(member).collect(),
        name: superblock.name,
    }))
}

/// Takes a drive's superblocks off it, durably: it holds no pool from then on. Runs on a reactor.
///
/// # Errors
/// When it cannot be written.
pub async fn erase(source: &dyn DriveSource) -> Result<(), IoError> {
    let drive = source.open();
    let blank = Buffer::zeroed(usize::try_from(SUPERBLOCK_SLOT).unwrap_or(0));
    for slot in SuperblockSlot::BOTH {
        drive.write(slot.offset(), &[blank.span()]).await?;
    }
    drive.flush().await.map(|_| ())
}
