//! Reading superblocks, and deciding which state of which pool a set of drives holds.

use format::limits::{BLOCK, SUPERBLOCK_SLOT};
use format::{DriveId, FormatError, Superblock, UnverifiedSuperblock};
use reactor::{Buffer, Drive, IoError};

use crate::error::{Error, ErrorKind, Result};
use crate::geometry::SuperblockSlot;

/// What one drive says.
#[derive(Debug)]
pub(crate) enum OnDrive {
    /// The newer of its two superblocks.
    Superblock(Box<DriveSuperblock>),
    /// A pool of another version of the format.
    OtherVersion(u32),
    /// It was a pool's, but neither slot verifies.
    Damaged,
    /// No pool.
    Nothing,
    /// It cannot be read.
    Unreadable(IoError),
}

/// The newest state of a pool that one drive holds.
#[derive(Debug)]
pub(crate) struct DriveSuperblock {
    pub(crate) superblock: Superblock,
    /// Which drive of the pool it is.
    pub(crate) drive: DriveId,
    /// The slot that holds it.
    pub(crate) slot: SuperblockSlot,
    /// The other slot, which held the state before, is damaged. That may have been a newer state: one that a crash interrupted,
    /// or one that was whole and has rotted since.
    pub(crate) other_is_damaged: bool,
}

/// Reads both slots of a drive.
pub(crate) async fn read_superblocks(drive: &dyn Drive) -> OnDrive {
    let mut best: Option<(Superblock, DriveId, SuperblockSlot)> = None;
    let mut other = OnDrive::Nothing;
    let mut verified = 0;
    for slot in SuperblockSlot::BOTH {
        match read_slot(drive, slot.offset()).await {
            Ok(Ok((superblock, id))) => {
                verified += 1;
                let newer = best.as_ref().is_none_or(|(best, ..)| !best.is_at_least(&superblock));
                if newer {
                    best = Some((superblock, id, slot));
                }
            }
            Ok(Err(FormatError::BadMagic)) => {}
            Ok(Err(FormatError::Version { found })) => other = OnDrive::OtherVersion(found),
            Ok(Err(_)) => {
                if !matches!(other, OnDrive::OtherVersion(_)) {
                    other = OnDrive::Damaged;
                }
            }
            Err(error) => {
                if matches!(other, OnDrive::Nothing) {
                    other = OnDrive::Unreadable(error);
                }
            }
        }
    }
    match best {
        Some((superblock, drive, slot)) => {
            // A drive that was given a state before this one holds that in its other slot.
            let mut records = superblock.drives.iter().filter(|record| record.id == drive);
            let holds_two = records.any(|record| record.confirmed.is_set());
            let other_is_damaged = holds_two && verified < SuperblockSlot::BOTH.len();
            OnDrive::Superblock(Box::new(DriveSuperblock { superblock, drive, slot, other_is_damaged }))
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

/// A drive's superblock.
struct Said<'a> {
    path: &'a str,
    superblock: &'a Superblock,
    drive: DriveId,
}

impl Said<'_> {
    /// True if a publish of this state cannot have been completed: a drive that it calls online never got it, and went
    /// on from another state. Nothing can have relied on it then (C1).
    fn is_abandoned(&self, all: &[Said<'_>]) -> bool {
        all.iter().any(|other| {
            let drives = &self.superblock.drives;
            let online = drives.iter().any(|drive| drive.id == other.drive && drive.state.is_in_use());
            online
                && !self.superblock.accounts_for(other.superblock, other.drive)
                && !other.superblock.accounts_for(self.superblock, self.drive)
        })
    }
}

/// The newest state that the drives agree on. `found` is what each drive says, in any order.
///
/// # Errors
/// `NotAPool` if no drive holds one, drives of several pools are mixed, or drives went on apart from one another;
/// `Version` for pools of another release.
pub(crate) fn newest(found: &[(String, OnDrive)]) -> Result<Superblock> {
    let all: Vec<Said<'_>> = found
        .iter()
        .filter_map(|(path, on_drive)| match on_drive {
            OnDrive::Superblock(found) => {
                Some(Said { path, superblock: &found.superblock, drive: found.drive })
            }
            _ => None,
        })
        .collect();
    let Some(first) = all.first() else {
        return Err(no_pool(found));
    };
    if let Some(other) = all.iter().find(|other| other.superblock.pool != first.superblock.pool) {
        let message = format!(
            "{} belongs to pool '{}' ({}), {} to pool '{}' ({}): open them apart",
            first.path,
            first.superblock.name,
            first.superblock.pool,
            other.path,
            other.superblock.name,
            other.superblock.pool
        );
        return Err(Error::new(ErrorKind::NotAPool, message));
    }
    let standing = || all.iter().filter(|said| !said.is_abandoned(&all));
    let newest = standing()
        .reduce(|best, next| if best.superblock.is_at_least(next.superblock) { best } else { next });
    let newest = newest.unwrap_or(first);
    if let Some(apart) = standing().find(|said| !newest.superblock.accounts_for(said.superblock, said.drive))
    {
        let message = format!(
            "{} and {} were each used without the other since they were last together, or one of them is a very old copy: open \
             the pool with --degraded --drives and only the drives whose data is wanted, then wipe the others and add them again",
            apart.path, newest.path
        );
        return Err(Error::new(ErrorKind::NotAPool, message));
    }
    Ok(newest.superblock.clone())
}

fn no_pool(found: &[(String, OnDrive)]) -> Error {
    for (path, on_drive) in found {
        match on_drive {
            OnDrive::OtherVersion(version) => {
                let message = format!(
                    "{path} holds a pool of format version {version}, this release reads version {}: use the release \
                     that wrote it",
                    format::FORMAT_VERSION
                );
                return Error::new(ErrorKind::Version, message);
            }
            OnDrive::Unreadable(error) => {
                return Error::new(ErrorKind::Io, format!("{path} cannot be read: {error}"));
            }
            OnDrive::Damaged => {
                return Error::new(ErrorKind::NotAPool, format!("both superblocks of {path} are damaged"));
            }
            OnDrive::Superblock(..) | OnDrive::Nothing => {}
        }
    }
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    Error::new(ErrorKind::NotAPool, format!("no pool on {}", paths.join(", ")))
}
