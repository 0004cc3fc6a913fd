//! Reads superblocks and determines the newest state of the pool on a set of drives.

use format::limits::{BLOCK, SUPERBLOCK_SLOT};
use format::{DriveId, FormatError, Superblock, UnverifiedSuperblock};
use reactor::{Buffer, Drive, IoError};

use crate::error::{Error, ErrorKind, Result};
use crate::geometry::SuperblockSlot;

/// The result of reading a drive's superblocks.
#[derive(Debug)]
pub(crate) enum SuperblockRead {
    /// The newer of the two superblocks.
    Superblock(Box<DriveSuperblock>),
    /// A pool of another version of the format.
    OtherVersion(u32),
    /// A member of a pool; neither slot passes verification.
    Damaged,
    /// No pool.
    Absent,
    /// The drive cannot be read.
    Unreadable(IoError),
}

/// The newest state of a pool on one drive.
#[derive(Debug)]
pub(crate) struct DriveSuperblock {
    pub(crate) superblock: Superblock,
    /// The drive's identity.
    pub(crate) drive: DriveId,
    /// The slot that holds the superblock.
    pub(crate) slot: SuperblockSlot,
    /// True if the other slot is damaged. It may have held a newer state: one whose write a crash
    /// interrupted, or one that was complete and has decayed since.
    pub(crate) other_is_damaged: bool,
}

/// Reads both slots of a drive.
pub(crate) async fn read_superblocks(drive: &dyn Drive) -> SuperblockRead {
    let mut best: Option<(Superblock, DriveId, SuperblockSlot)> = None;
    let mut other = SuperblockRead::Absent;
    let mut verified = 0;
    for slot in SuperblockSlot::BOTH {
        match read_slot(drive, slot.offset()).await {
            Ok(Ok((superblock, id))) => {
                verified += 1;
                let is_newer = best.as_ref().is_none_or(|(best, ..)| !best.is_at_least(&superblock));
                if is_newer {
                    best = Some((superblock, id, slot));
                }
            }
            Ok(Err(FormatError::BadMagic)) => {}
            Ok(Err(FormatError::Version { found })) => other = SuperblockRead::OtherVersion(found),
            Ok(Err(_)) => {
                if !matches!(other, SuperblockRead::OtherVersion(_)) {
                    other = SuperblockRead::Damaged;
                }
            }
            Err(error) => {
                if matches!(other, SuperblockRead::Absent) {
                    other = SuperblockRead::Unreadable(error);
                }
            }
        }
    }
    match best {
        Some((superblock, drive, slot)) => {
            // A drive with a confirmed earlier state holds it in the other slot.
            let mut records = superblock.drives.iter().filter(|record| record.id == drive);
            let holds_two = records.any(|record| record.confirmed.is_set());
            let other_is_damaged = holds_two && verified < SuperblockSlot::BOTH.len();
            SuperblockRead::Superblock(Box::new(DriveSuperblock {
                superblock,
                drive,
                slot,
                other_is_damaged,
            }))
        }
        None => other,
    }
}

async fn read_slot(
    drive: &dyn Drive,
    offset: u64,
) -> std::result::Result<std::result::Result<(Superblock, DriveId), FormatError>, IoError> {
    if drive.properties().size < 2 * SUPERBLOCK_SLOT {
        return Ok(Err(FormatError::BadMagic));
    }
    let first = Buffer::new(BLOCK);
    drive.read(offset, &[first.span()]).await?;
    let unverified = match UnverifiedSuperblock::parse(first.as_slice()) {
        Ok(unverified) => unverified,
        Err(error) => return Ok(Err(error)),
    };
    let whole = Buffer::new(unverified.stored_bytes());
    drive.read(offset, &[whole.span()]).await?;
    Ok(unverified.verify(whole.as_slice()))
}

/// The pool state that a drive claims.
struct StateClaim<'a> {
    path: &'a str,
    superblock: &'a Superblock,
    drive: DriveId,
}

impl StateClaim<'_> {
    /// True if the publish of this state cannot have completed: a drive that the state lists as
    /// online never received it and continued from another state. Nothing can depend on this state
    /// then (C1).
    fn is_abandoned(&self, all: &[StateClaim<'_>]) -> bool {
        all.iter().any(|other| {
            let drives = &self.superblock.drives;
            let online = drives.iter().any(|drive| drive.id == other.drive && drive.state.is_in_use());
            online
                && !self.superblock.accounts_for(other.superblock, other.drive)
                && !other.superblock.accounts_for(self.superblock, self.drive)
        })
    }
}

/// Returns the newest state that the drives agree on. `read` holds the superblocks of each drive,
/// in any order.
///
/// # Errors
/// `NotAPool` if no drive holds a pool, drives of several pools are mixed, or the drives have
/// diverged (split brain); `Version` for pools of another format version.
pub(crate) fn newest(read: &[(String, SuperblockRead)]) -> Result<Superblock> {
    let all: Vec<StateClaim<'_>> = read
        .iter()
        .filter_map(|(path, on_drive)| match on_drive {
            SuperblockRead::Superblock(found) => {
                Some(StateClaim { path, superblock: &found.superblock, drive: found.drive })
            }
            _ => None,
        })
        .collect();
    let Some(first) = all.first() else {
        return Err(no_pool(read));
    };
    if let Some(other) = all.iter().find(|other| other.superblock.pool != first.superblock.pool) {
        let message = format!(
            "{} belongs to pool '{}' ({}) and {} to pool '{}' ({}): open each pool with its own drives",
            first.path,
            first.superblock.name,
            first.superblock.pool,
            other.path,
            other.superblock.name,
            other.superblock.pool
        );
        return Err(Error::new(ErrorKind::NotAPool, message));
    }
    let candidates = || all.iter().filter(|claim| !claim.is_abandoned(&all));
    let newest = candidates()
        .reduce(|best, next| if best.superblock.is_at_least(next.superblock) { best } else { next });
    let newest = newest.unwrap_or(first);
    if let Some(diverged) =
        candidates().find(|claim| !newest.superblock.accounts_for(claim.superblock, claim.drive))
    {
        let message = format!(
            "{} and {} have diverged (split brain): each was used without the other, or one of them is a very old copy. Open the \
             pool with --degraded --drives and only the drives whose data to keep, then wipe the others and add them again",
            diverged.path, newest.path
        );
        return Err(Error::new(ErrorKind::NotAPool, message));
    }
    Ok(newest.superblock.clone())
}

fn no_pool(read: &[(String, SuperblockRead)]) -> Error {
    for (path, on_drive) in read {
        match on_drive {
            SuperblockRead::OtherVersion(version) => {
                let message = format!(
                    "{path} holds a pool of format version {version}, and this release reads version {}: use the \
                     release that wrote it",
                    format::FORMAT_VERSION
                );
                return Error::new(ErrorKind::Version, message);
            }
            SuperblockRead::Unreadable(error) => {
                return Error::new(ErrorKind::Io, format!("{path} cannot be read: {error}"));
            }
            SuperblockRead::Damaged => {
                return Error::new(ErrorKind::NotAPool, format!("both superblocks of {path} are damaged"));
            }
            SuperblockRead::Superblock(..) | SuperblockRead::Absent => {}
        }
    }
    let paths: Vec<&str> = read.iter().map(|(path, _)| path.as_str()).collect();
    Error::new(ErrorKind::NotAPool, format!("no pool on {}", paths.join(", ")))
}
