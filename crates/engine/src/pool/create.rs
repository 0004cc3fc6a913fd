//! Creating a pool: the first superblock, on every drive.

use std::sync::Arc;

use format::limits::{BLOCK_BYTES, DRIVES_MAX, NAME_MAX, SEGMENT_BLOCKS_MIN, SHARDS_MAX, ZONE_MAX, ZONE_MIN};
use format::{
    DriveErrors, DriveId, DriveIndex, DriveRecord, DriveState, Generation, Incarnation, PoolId, PoolKey,
    PoolOpening, Scheme, ScrubRecord, ShardRecord, StateStamp, Superblock,
};
use futures_util::future::LocalBoxFuture;
use reactor::{Buffer, IoError, IoErrorKind};

use crate::drive_setup::{check_zones, prepare_drive, short_path};
use crate::drive_source::DriveSource;
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::{Geometry, SuperblockSlot, data_start_for, drive_bytes_min, zone_bytes_for};
use crate::invariant::narrow;

/// Default interval between scrubs in seconds: 30 days.
const SCRUB_EVERY: u64 = 30 * 86_400;

/// Properties of a new pool.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// The name.
    pub name: String,
    /// The erasure coding scheme.
    pub scheme: Scheme,
    /// Number of shards: the most cores the pool can use. Fixed at creation.
    pub shards: u16,
    /// Zone size in bytes; derived from the size of the drives if absent.
    pub zone_bytes: Option<u64>,
    /// The current time, in seconds since 1970.
    pub now: u64,
    /// Random bytes, from which the pool's identity and key and the drives' identities are derived.
    pub entropy: [u8; 32],
}

/// Checks a pool's or volume's name.
///
/// # Errors
/// `Invalid`, with the rule that the name violates.
pub fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let problem = if name.is_empty() {
        "is empty"
    } else if name.len() > NAME_MAX {
        "is longer than 63 bytes"
    } else if !name.chars().all(allowed) {
        "may only contain letters, digits, '.', '_' and '-'"
    } else if name.starts_with(['.', '-']) {
        "may not start with '.' or '-'"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    Err(Error::new(ErrorKind::Invalid, format!("the name '{shown}' {problem}")))
}

/// Creates a pool on `drives` and overwrites their contents; the caller checks that the drives may
/// be used. Runs on a reactor. Returns the pool's identity.
///
/// # Errors
/// `Invalid` for invalid options; `NoSpace` if files cannot grow; `Io` if a drive cannot be
/// written.
pub fn create<'a>(
    drives: &'a [Arc<dyn DriveSource>],
    options: &'a CreateOptions,
) -> LocalBoxFuture<'a, Result<PoolId>> {
    Box::pin(async move {
        check_options(drives, options)?;
        let opened: Vec<_> = drives.iter().map(|source| (source.path(), source.open())).collect();
        let smallest = opened.iter().map(|(_, drive)| drive.properties().size).fold(u64::MAX, u64::min);
        let zone_bytes = options.zone_bytes.unwrap_or_else(|| zone_bytes_for(smallest));
        for (path, drive) in &opened {
            let (size, needed) = (drive.properties().size, drive_bytes_min(zone_bytes));
            if size < needed {
                let message = format!(
                    "{path} has {size} bytes; a drive needs at least {needed} for zones of {zone_bytes}"
                );
                return Err(Error::new(ErrorKind::Invalid, message));
            }
        }
        let sizes: Vec<_> =
            opened.iter().map(|(path, drive)| (path.clone(), drive.properties().size)).collect();
        let superblock = initial_superblock(options, zone_bytes, &sizes);
        check_zones(&superblock, 0)?;
        for (index, (record, (_, drive))) in superblock.drives.iter().zip(&opened).enumerate() {
            let failed = |error: IoError| {
                if error.kind() == IoErrorKind::NoSpace {
                    let message = format!("the file system under {} has no room for it", record.path);
                    return Error::new(ErrorKind::NoSpace, message);
                }
                let index = DriveIndex::new(narrow(index, "C5"));
                Error::io(format!("writing the superblock of {} failed", record.path), index, error)
            };
            let bytes = superblock.encode(record.id);
            prepare_drive(&**drive, superblock.data_start).await.map_err(failed)?;
            drive
                .write(SuperblockSlot::First.offset(), &[Buffer::copy_of(&bytes).span()])
                .await
                .map_err(failed)?;
            drive.flush().await.map_err(failed)?;
        }
        Ok(superblock.pool)
    })
}

fn check_options(drives: &[Arc<dyn DriveSource>], options: &CreateOptions) -> Result<()> {
    let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
    check_name(&options.name)?;
    let width = usize::from(options.scheme.width());
    if drives.len() < width {
        return invalid(format!(
            "scheme {} needs {width} drives, {} are given",
            options.scheme,
            drives.len()
        ));
    }
    if drives.len() > DRIVES_MAX {
        return invalid(format!("a pool has at most {DRIVES_MAX} drives, {} are given", drives.len()));
    }
    if options.shards == 0 || usize::from(options.shards) > SHARDS_MAX {
        return invalid(format!("a pool has 1 to {SHARDS_MAX} shards, not {}", options.shards));
    }
    if let Some(zone) = options.zone_bytes
        && !(zone.is_power_of_two() && (ZONE_MIN..=ZONE_MAX).contains(&zone))
    {
        return invalid(format!(
            "zone size {zone} is invalid: it must be a power of two from {ZONE_MIN} to {ZONE_MAX} bytes"
        ));
    }
    let data = options.scheme.data();
    if let Some(zone) = options.zone_bytes
        && zone / BLOCK_BYTES * u64::from(data) < SEGMENT_BLOCKS_MIN
    {
        return invalid(format!(
            "zone size {zone} is too small for {data} data columns: a segment must have at least {SEGMENT_BLOCKS_MIN} blocks"
        ));
    }
    Ok(())
}

fn initial_superblock(options: &CreateOptions, zone_bytes: u64, drives: &[(String, u64)]) -> Superblock {
    let (pool, key) = options.entropy.split_at(16);
    let as_id = |bytes: &[u8]| {
        let mut id = [0; 16];
        id.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        id
    };
    let pool = PoolId(as_id(pool));
    let geometry = Geometry {
        scheme: options.scheme,
        table_width: options.scheme.width().max(options.scheme.mirror().width()),
        zone_bytes,
        data_start: data_start_for(zone_bytes),
    };
    let record = |(index, (path, size)): (u16, &(String, u64))| {
        // Derived from the pool's random identity and the drive's index, so unique.
        let mut id = pool.0;
        id.iter_mut().zip(index.to_le_bytes()).for_each(|(to, byte)| *to ^= byte);
        if let Some(last) = id.last_mut() {
            *last ^= 0xD5;
        }
        DriveRecord {
            id: DriveId(id),
            size: *size,
            zones: geometry.zones(*size),
            state: DriveState::Online,
            since: Generation::new(1),
            confirmed: StateStamp::default(),
            left_at: StateStamp::default(),
            errors: DriveErrors::default(),
            path: short_path(path),
        }
    };
    Superblock {
        pool,
        key: PoolKey(as_id(key)),
        name: options.name.clone(),
        created: options.now,
        lineage: vec![PoolOpening { epoch: 1, nonce: u64::from_le_bytes(first_eight(key)) }],
        generation: Generation::new(1),
        scheme: options.scheme,
        table_width: geometry.table_width,
        zone_bytes,
        data_start: geometry.data_start,
        clean: true,
        next_incarnation: Incarnation::new(1),
        drives: (0..).zip(drives).map(record).collect(),
        shards: vec![ShardRecord::default(); usize::from(options.shards)],
        scrub: ScrubRecord {
            every: SCRUB_EVERY,
            positions: vec![Incarnation::new(0); usize::from(options.shards)],
            ..ScrubRecord::default()
        },
    }
}

fn first_eight(bytes: &[u8]) -> [u8; 8] {
    let mut first = [0; 8];
    first.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte.rotate_left(3));
    first
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;
