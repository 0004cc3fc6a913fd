//! Superblocks at the limits of the format: encoder and decoder agree on each of them.

use super::*;
use crate::limits::RECENT_SEGMENTS_MAX;
use crate::superblock::tests::sample;
use crate::testing::{assert_both, encoded};
use crate::{
    DriveId, Row, Scheme, SegmentClass, SegmentColumn, SegmentId, SegmentRecord, SegmentState, ShardRecord,
    UnverifiedSuperblock, recent_segments_max,
};

const DRIVE: DriveId = DriveId([3; 16]);

fn decode(bytes: &[u8]) -> Result<Superblock, FormatError> {
    UnverifiedSuperblock::parse(bytes)?.verify(bytes).map(|(superblock, _)| superblock)
}

/// Asserts that encoder and decoder agree on a superblock, and that `accepted` is the result.
#[track_caller]
fn check(accepted: bool, superblock: &Superblock) {
    let write = || superblock.encode(DRIVE);
    assert_both(accepted, superblock, &superblock.write(DRIVE), write, decode);
}

/// Returns the sample with one change.
fn with(change: impl FnOnce(&mut Superblock)) -> Superblock {
    let mut superblock = sample();
    change(&mut superblock);
    superblock
}

/// Returns a superblock with this many shards.
fn with_shards(count: usize) -> Superblock {
    with(|superblock| {
        superblock.shards = vec![ShardRecord::default(); count];
        superblock.scrub.positions.resize(count, Default::default());
    })
}

#[test]
fn numbers_of_drives_and_shards_outside_the_limits_are_refused() {
    let drives = |count| with(|superblock| superblock.drives = vec![superblock.drives[0].clone(); count]);
    for (accepted, count) in [(true, 1), (true, DRIVES_MAX), (false, DRIVES_MAX + 1), (false, 0)] {
        check(accepted, &drives(count));
    }
    for (accepted, count) in [(true, 1), (true, SHARDS_MAX), (false, SHARDS_MAX + 1), (false, 0)] {
        check(accepted, &with_shards(count));
    }
    let fewer = with(|superblock| superblock.scrub.positions.truncate(1));
    assert!(encoded(|| fewer.encode(DRIVE)).is_none(), "a position for each shard");
}

#[test]
fn invalid_zone_sizes_are_refused() {
    for (accepted, bytes) in [
        (true, ZONE_MIN),
        (true, ZONE_MAX),
        (false, ZONE_MIN / 2),
        (false, ZONE_MAX * 2),
        (false, ZONE_MIN + BLOCK_BYTES),
        (false, 0),
    ] {
        check(accepted, &with(|superblock| superblock.zone_bytes = bytes));
    }
    for (accepted, byte) in [
        (true, 2 * SUPERBLOCK_SLOT),
        (true, 2 * SUPERBLOCK_SLOT + BLOCK_BYTES),
        (false, 2 * SUPERBLOCK_SLOT - BLOCK_BYTES),
        (false, 2 * SUPERBLOCK_SLOT + 512),
    ] {
        check(accepted, &with(|superblock| superblock.data_start = byte));
    }
}

#[test]
fn tables_narrower_than_the_scheme_are_refused() {
    let of = |width, data, parity| {
        with(|superblock| {
            superblock.table_width = width;
            superblock.scheme = Scheme::new(data, parity).unwrap();
            superblock.shards = vec![ShardRecord::default(); 2];
        })
    };
    let most = COLUMNS_MAX as u8;
    check(true, &of(most, most - 1, 1));
    check(false, &of(most - 1, most - 1, 1));
    check(false, &of(most + 1, 4, 1));
    check(true, &of(most, 1, 0));
}

#[test]
fn too_few_zones_and_too_long_paths_are_refused() {
    let zones = |count| with(|superblock| superblock.drives[0].zones = count);
    check(true, &zones(8));
    check(true, &zones(u32::MAX));
    let few = zones(7);
    assert!(encoded(|| few.encode(DRIVE)).is_none());
    let path = |length| with(|superblock| superblock.drives[0].path = "p".repeat(length));
    check(true, &path(DRIVE_PATH_MAX));
    assert!(encoded(|| path(DRIVE_PATH_MAX + 1).encode(DRIVE)).is_none());
    let name = |length| with(|superblock| superblock.name = "n".repeat(length));
    check(true, &name(NAME_MAX));
    assert!(encoded(|| name(NAME_MAX + 1).encode(DRIVE)).is_none());
}

/// Decodes a stored superblock after a change to its bytes, under a recomputed MAC.
fn resealed(superblock: &Superblock, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), FormatError> {
    let mut bytes = superblock.encode(DRIVE);
    let length = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    bytes.truncate(length);
    change(&mut bytes);
    let length = bytes.len() as u32;
    bytes[12..16].copy_from_slice(&length.to_le_bytes());
    let mac = superblock.key.mac(&[&bytes[..16], &bytes[32..]]);
    bytes[16..32].copy_from_slice(&mac);
    decode(&bytes).map(|_| ())
}

#[test]
fn invalid_fields_are_refused() {
    let superblock = sample();
    let invalid = |field| Err(FormatError::Invalid(field));
    assert_eq!(resealed(&superblock, |_| ()), Ok(()));
    assert_eq!(resealed(&superblock, |bytes| bytes.push(0)), invalid("length"));
    assert_eq!(resealed(&superblock, |bytes| bytes.truncate(bytes.len() - 1)), Err(FormatError::Truncated));
    // Front 80 bytes, name 2 + 4, created 8, openings 1 + 2 * 16, generation 8, k, m, width, clean.
    let state = 80 + 6 + 9 + 2 * 16 + 8;
    assert_eq!(resealed(&superblock, |bytes| bytes[state + 3] = 2), invalid("clean flag"));
    assert_eq!(resealed(&superblock, |bytes| bytes[state] = 0), invalid("scheme"));
    for openings in [0, 9] {
        let at = state - 8 - 2 * 16 - 1;
        assert_eq!(resealed(&superblock, |bytes| bytes[at] = openings), invalid("lineage"));
    }
    let name = 80;
    assert_eq!(resealed(&superblock, |bytes| bytes[name] = 64), invalid("text length"));
    assert_eq!(resealed(&superblock, |bytes| bytes[name + 2] = 0xFF), invalid("text encoding"));
    let drive = state + 32;
    assert_eq!(resealed(&superblock, |bytes| bytes[drive + 24] = 7), Ok(()), "0x307 zones");
    let few = |bytes: &mut Vec<u8>| bytes[drive + 24..drive + 28].copy_from_slice(&[7, 0, 0, 0]);
    assert_eq!(resealed(&superblock, few), invalid("zones of a drive"));
    for state in [0, 7] {
        assert_eq!(resealed(&superblock, |bytes| bytes[drive + 28] = state), invalid("drive state"));
    }
    let long = |bytes: &mut Vec<u8>| bytes[drive + 121..drive + 123].copy_from_slice(&[0, 1]);
    assert_eq!(resealed(&superblock, long), invalid("text length"));
    let running = |bytes: &mut Vec<u8>| {
        let at = bytes.len() - 16 - 97 + 8;
        bytes[at] = 2;
    };
    assert_eq!(resealed(&superblock, running), invalid("scrub flag"));
}

fn segment(width: u8) -> SegmentRecord {
    SegmentRecord {
        incarnation: crate::Incarnation::new(1),
        scheme: Scheme::new(width - 1, 1).unwrap(),
        class: SegmentClass::Hot,
        state: SegmentState::Open,
        rows: 0,
        columns: vec![SegmentColumn::hole(); usize::from(width)],
    }
}

/// Returns a superblock of `shards` shards with `segments` recent segments each, of the maximum
/// width.
fn with_recent(shards: usize, segments: usize) -> Superblock {
    let mut superblock = with_shards(shards);
    superblock.table_width = COLUMNS_MAX as u8;
    let recent = vec![(SegmentId::new(1), Row::new(0), segment(COLUMNS_MAX as u8)); segments];
    superblock.shards.iter_mut().for_each(|shard| shard.recent.clone_from(&recent));
    superblock
}

#[test]
fn too_many_recent_segments_are_refused() {
    check(true, &with_recent(2, RECENT_SEGMENTS_MAX));
    check(false, &with_recent(2, RECENT_SEGMENTS_MAX + 1));
    let mut unnamed = with_recent(1, 1);
    unnamed.shards[0].recent[0].0 = SegmentId::new(0);
    check(false, &unnamed);
}

#[test]
fn the_largest_superblock_fits_its_slot() {
    let most = recent_segments_max(SHARDS_MAX, COLUMNS_MAX as u8);
    assert_eq!(most, 60);
    let mut superblock = with_recent(SHARDS_MAX, most);
    let mut drive = superblock.drives[0].clone();
    drive.path = "p".repeat(DRIVE_PATH_MAX);
    superblock.drives = vec![drive; DRIVES_MAX];
    superblock.name = "n".repeat(NAME_MAX);
    superblock.lineage.resize(LINEAGE_MAX, Default::default());
    check(true, &superblock);
    let recent = SHARDS_MAX * most * (8 + 16 + 12 * COLUMNS_MAX);
    let length = u32::from_le_bytes(superblock.encode(DRIVE)[12..16].try_into().unwrap());
    assert_eq!(length as usize, WITHOUT_RECENT_MAX + recent);
}

#[test]
fn a_superblock_may_fill_its_slot_to_the_last_byte() {
    // More recent segments than a writer of this pool would list, until the slot is nearly full;
    // then longer paths until it is full.
    let mut superblock = with_recent(SHARDS_MAX, 79);
    let drive = superblock.drives[0].clone();
    superblock.drives = vec![crate::DriveRecord { path: String::new(), ..drive }; DRIVES_MAX];
    let length = |superblock: &Superblock| {
        let bytes = superblock.write(DRIVE);
        u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize
    };
    let mut left = SUPERBLOCK_SLOT as usize - length(&superblock);
    assert!((1..DRIVES_MAX * DRIVE_PATH_MAX).contains(&left), "{left}");
    for drive in &mut superblock.drives {
        drive.path = "p".repeat(left.min(DRIVE_PATH_MAX - 1));
        left -= drive.path.len();
    }
    check(true, &superblock);
    assert_eq!(length(&superblock) as u64, SUPERBLOCK_SLOT);
    superblock.drives[0].path.push('p');
    assert!(encoded(|| superblock.encode(DRIVE)).is_none(), "one byte too many");
    let mut front = sample().encode(DRIVE)[..32].to_vec();
    for (length, expected) in [
        (SUPERBLOCK_SLOT, Ok(SUPERBLOCK_SLOT as usize)),
        (SUPERBLOCK_SLOT + 1, Err(FormatError::Invalid("superblock length"))),
        (32, Ok(4096)),
        (31, Err(FormatError::Invalid("superblock length"))),
    ] {
        front[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        let parsed = UnverifiedSuperblock::parse(&front).map(|found| found.stored_bytes());
        assert_eq!(parsed, expected, "{length}");
    }
}
