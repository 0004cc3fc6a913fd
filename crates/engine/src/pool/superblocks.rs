//! Reading superblocks, and deciding which state of which pool a set of drives holds.

use format::limits::{BLOCK, SUPERBLOCK_SLOT};
use format::{DriveId, FormatError, Generation, Superblock, UnverifiedSuperblock};
use reactor::{Buffer, Drive, IoError};

use crate::error::{Error, ErrorKind, Result};
use crate::geometry::superblock_offset;

/// What one drive says.
#[derive(Debug)]
pub(crate) enum OnDrive {
    /// The newer of its two superblocks, and which drive of the pool it is.
    Superblock(Box<Superblock>, DriveId),
    /// A pool of another version of the format.
    OtherVersion(u32),
    /// It was a pool's, but neither slot verifies.
    Damaged,
    /// No pool.
    Nothing,
    /// It cannot be read.
    Unreadable(IoError),
}

/// Reads both slots of a drive.
pub(crate) async fn read_superblocks(drive: &dyn Drive) -> OnDrive {
    let mut best: Option<(Superblock, DriveId)> = None;
    let mut other = OnDrive::Nothing;
    for slot in 0..2 {
        match read_slot(drive, superblock_offset(Generation::new(slot))).await {
            Ok(Ok((superblock, id))) => {
                let newer = best.as_ref().is_none_or(|(best, _)| !best.is_at_least(&superblock));
                if newer {
                    best = Some((superblock, id));
                }
            }
            Ok(Err(FormatError::NotOurs)) => {}
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
        Some((superblock, id)) => OnDrive::Superblock(Box::new(superblock), id),
        None => other,
    }
}

async fn read_slot(
    drive: &dyn Drive,
    offset: u64,
) -> std::result::Result<std::result::Result<(Superblock, DriveId), FormatError>, IoError> {
    if drive.properties().size < 2 * SUPERBLOCK_SLOT {
        return Ok(Err(FormatError::NotOurs));
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

/// The newest state that the drives agree on. `found` is what each drive says, in any order.
///
/// # Errors
/// `NotAPool` if no drive holds one, drives of several pools are mixed, or drives went on apart from one another;
/// `Version` for pools of another release.
pub(crate) fn newest(found: &[(String, OnDrive)]) -> Result<Superblock> {
    let superblocks: Vec<(&String, &Superblock)> = found
        .iter()
        .filter_map(|(path, on_drive)| match on_drive {
            OnDrive::Superblock(superblock, _) => Some((path, &**superblock)),
            _ => None,
        })
        .collect();
    let newest = superblocks.iter().copied().reduce(|best, next| if best.1.is_at_least(next.1) { best } else { next });
    let Some((newest_path, newest)) = newest else {
        return Err(no_pool(found));
    };
    for (path, superblock) in &superblocks {
        if superblock.pool != newest.pool {
            let message = format!(
                "{path} belongs to pool '{}' ({}), {newest_path} to pool '{}' ({}): open them apart",
                superblock.name, superblock.pool, newest.name, newest.pool
            );
            return Err(Error::new(ErrorKind::NotAPool, message));
        }
        if !newest.descends_from(superblock) {
            let message = format!(
                "{path} and {newest_path} were each used without the other since they were last together: give only \
                 the drives whose data is wanted, the others must be wiped"
            );
            return Err(Error::new(ErrorKind::NotAPool, message));
        }
    }
    Ok(newest.clone())
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
