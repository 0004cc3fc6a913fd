//! Single drives: identifies the pool on a drive, and erases its superblocks.

use format::limits::SUPERBLOCK_SLOT;
use format::{DriveId, DriveState, PoolId, Scheme};
use futures_util::future::LocalBoxFuture;
use reactor::{Buffer, IoError};

use crate::drive_source::DriveSource;
use crate::geometry::SuperblockSlot;
use crate::invariant::to_index;
use crate::superblocks::{SuperblockRead, read_superblocks};

/// The contents of a drive with respect to pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriveContents {
    /// A member of a pool.
    Pool(Box<PoolLabel>),
    /// A member of a pool with damaged superblocks.
    Damaged,
    /// A pool of another format version.
    OtherVersion(u32),
    /// No pool.
    NoPool,
    /// The drive cannot be read.
    Unreadable(IoError),
}

/// The pool as recorded on one drive. Other drives may hold a newer state: see
/// [`PoolLabel::written`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolLabel {
    /// The pool's identity.
    pub pool: PoolId,
    /// The pool's name.
    pub name: String,
    /// The scheme of new data.
    pub scheme: Scheme,
    /// The drive's identity.
    pub drive: DriveId,
    /// The epoch and generation of this state. The highest of all drives is the newest.
    pub written: (u64, u64),
    /// True if the pool was closed cleanly.
    pub clean: bool,
    /// The drives of the pool, by index.
    pub members: Vec<MemberDrive>,
}

/// A drive of a pool, as recorded in a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberDrive {
    /// The drive's identity.
    pub id: DriveId,
    /// The path under which the drive was last opened.
    pub path: String,
    /// Usable size in bytes.
    pub size: u64,
    /// The state.
    pub state: DriveState,
}

/// Reads a drive's superblocks and returns the pool it belongs to. Runs on a reactor.
pub fn identify(source: &dyn DriveSource) -> LocalBoxFuture<'_, DriveContents> {
    Box::pin(async move {
        let (superblock, drive) = match read_superblocks(&*source.open()).await {
            SuperblockRead::Superblock(found) => (found.superblock, found.drive),
            SuperblockRead::Damaged => return DriveContents::Damaged,
            SuperblockRead::OtherVersion(version) => return DriveContents::OtherVersion(version),
            SuperblockRead::Absent => return DriveContents::NoPool,
            SuperblockRead::Unreadable(error) => return DriveContents::Unreadable(error),
        };
        let member = |record: &format::DriveRecord| MemberDrive {
            id: record.id,
            path: record.path.clone(),
            size: record.size,
            state: record.state,
        };
        DriveContents::Pool(Box::new(PoolLabel {
            pool: superblock.pool,
            scheme: superblock.scheme,
            drive,
            written: (superblock.epoch().epoch, superblock.generation.get()),
            clean: superblock.clean,
            members: superblock.drives.iter().map(member).collect(),
            name: superblock.name,
        }))
    })
}

/// Erases a drive's superblocks durably. The drive then holds no pool. Runs on a reactor.
///
/// # Errors
/// When the drive cannot be written.
pub fn erase(source: &dyn DriveSource) -> LocalBoxFuture<'_, Result<(), IoError>> {
    Box::pin(async move {
        let drive = source.open();
        let blank = Buffer::zeroed(to_index(SUPERBLOCK_SLOT));
        for slot in SuperblockSlot::BOTH {
            drive.write(slot.offset(), &[blank.span()]).await?;
        }
        drive.flush().await.map(|_| ())
    })
}
