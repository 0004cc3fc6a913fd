//! Preparation of a drive that joins a pool.

use format::limits::{DRIVE_PATH_MAX, SUPERBLOCK_SLOT};
use format::{DriveState, Superblock, pool_zones_max};
use reactor::{Buffer, Drive, IoError, IoErrorKind, IoResult};

use crate::error::{Error, ErrorKind, Result};
use crate::geometry::SuperblockSlot;
use crate::invariant::to_index;

/// Checks that the tables of the pool's shards can describe the segments on its drives and on an
/// additional drive with `extra_zones` zones.
///
/// # Errors
/// `Invalid`, with the largest number of zones.
pub(crate) fn check_zones(superblock: &Superblock, extra_zones: u32) -> Result<()> {
    let Superblock { scheme, table_width, zone_bytes, .. } = *superblock;
    let shards = superblock.shards.len();
    let max = pool_zones_max(scheme, shards, table_width, zone_bytes);
    let members = superblock.drives.iter().filter(|drive| drive.state != DriveState::Removed);
    let zones: u64 = members.map(|drive| u64::from(drive.zones)).sum::<u64>() + u64::from(extra_zones);
    if zones <= max {
        return Ok(());
    }
    let message = format!(
        "the drives have {zones} zones of {zone_bytes} bytes; the tables of a pool with {shards} shards and scheme {scheme} describe up to {max}: create the pool with larger zones or more shards to use these drives"
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

/// Erases the superblocks of another pool from a drive and reserves the space for superblocks.
pub(crate) async fn prepare_drive(drive: &dyn Drive, data_start: u64) -> std::result::Result<(), IoError> {
    let blank = Buffer::zeroed(to_index(SUPERBLOCK_SLOT));
    drive.reserve(0, data_start).await.or_else(ignore_unsupported)?;
    for slot in SuperblockSlot::BOTH {
        drive.write(slot.offset(), &[blank.span()]).await?;
    }
    drive.flush().await.map(|_| ())
}

fn ignore_unsupported(error: IoError) -> IoResult {
    if error.kind() == IoErrorKind::Unsupported { Ok(0) } else { Err(error) }
}

/// Truncates a path to the space in the superblock, at a character boundary.
pub(crate) fn short_path(path: &str) -> String {
    let mut end = path.len().min(DRIVE_PATH_MAX);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    path.split_at(end).0.to_owned()
}
