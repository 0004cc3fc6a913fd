//! Superblocks: round trips, detection of damage, and ordering.

use super::*;
use crate::{DriveErrors, DriveState, ScrubTally, SegmentClass, SegmentColumn, SegmentState, ZoneIndex};

pub(crate) fn sample() -> Superblock {
    let drive = |index: u8| DriveRecord {
        id: DriveId([index; 16]),
        size: 1 << 30,
        zones: 1020,
        state: if index == 2 { DriveState::Failed } else { DriveState::Online },
        since: Generation::new(u64::from(index)),
        confirmed: StateStamp {
            opening: PoolOpening { epoch: 2, nonce: 5 },
            generation: Generation::new(u64::from(index)),
        },
        left_at: StateStamp::default(),
        errors: DriveErrors { unreadable: u64::from(index), zones: 3, ..DriveErrors::default() },
        path: format!("/dev/disk/by-id/nvme-{index}"),
    };
    let segment = SegmentRecord {
        incarnation: Incarnation::new(5),
        scheme: Scheme::new(4, 1).unwrap(),
        class: SegmentClass::Hot,
        state: SegmentState::Open,
        rows: 0,
        columns: (0..5u16)
            .map(|index| match index {
                2 => SegmentColumn::hole(),
                _ => SegmentColumn::whole(DriveIndex::new(index), ZoneIndex::new(9)),
            })
            .collect(),
    };
    Superblock {
        pool: PoolId([1; 16]),
        key: PoolKey([2; 16]),
        name: "fast".into(),
        created: 1_700_000_000,
        lineage: vec![PoolOpening { epoch: 1, nonce: 4 }, PoolOpening { epoch: 2, nonce: 5 }],
        generation: Generation::new(7),
        scheme: Scheme::new(4, 1).unwrap(),
        table_width: 5,
        zone_bytes: 1 << 20,
        data_start: 4 << 20,
        clean: false,
        next_incarnation: Incarnation::new(6),
        drives: (0..5).map(drive).collect(),
        shards: vec![
            ShardRecord::default(),
            ShardRecord {
                root: MapEntry::ABSENT,
                checkpointed: Sequence::new(44),
                recent: vec![(SegmentId::new(3), Row::new(12), segment)],
            },
        ],
        scrub: ScrubRecord {
            every: 86_400,
            running: true,
            until: Incarnation::new(5),
            current: ScrubTally { began: 1_700_000_000, bytes: 77, ..ScrubTally::default() },
            last: ScrubTally { began: 1, ended: 2, bytes: 3, damaged: 4, lost: 5 },
            positions: vec![Incarnation::new(3), Incarnation::new(4)],
        },
    }
}

fn decode(bytes: &[u8]) -> Result<(Superblock, DriveId), FormatError> {
    UnverifiedSuperblock::parse(bytes)?.verify(bytes)
}

#[test]
fn superblocks_round_trip_with_their_drive() {
    let superblock = sample();
    let bytes = superblock.encode(DriveId([3; 16]));
    assert!(bytes.len().is_multiple_of(BLOCK));
    assert_eq!(decode(&bytes), Ok((superblock, DriveId([3; 16]))));
}

#[test]
fn every_flipped_byte_is_detected() {
    let superblock = sample();
    let bytes = superblock.encode(DriveId([3; 16]));
    let used = UnverifiedSuperblock::parse(&bytes).unwrap().length;
    for at in 0..used {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        assert!(decode(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn a_torn_superblock_is_detected() {
    let mut superblock = sample();
    superblock.drives = (0..200).map(|_| superblock.drives[0].clone()).collect();
    let bytes = superblock.encode(DriveId([3; 16]));
    assert!(bytes.len() > 2 * BLOCK);
    let mut torn = bytes.clone();
    torn[BLOCK..].fill(0);
    assert_eq!(decode(&torn), Err(FormatError::Checksum));
    assert_eq!(decode(&bytes[..BLOCK]), Err(FormatError::Truncated));
}

#[test]
fn order_and_ancestry() {
    let old = sample();
    let mut newer = old.clone();
    newer.generation = Generation::new(8);
    assert!(newer.is_at_least(&old) && !old.is_at_least(&newer));
    let mut reopened = newer.clone();
    reopened.lineage.push(PoolOpening { epoch: 3, nonce: 77 });
    reopened.generation = Generation::new(1);
    let drive = old.drives[0].id;
    assert!(reopened.is_at_least(&newer) && reopened.accounts_for(&old, drive));
    let mut fork = newer;
    fork.lineage.push(PoolOpening { epoch: 3, nonce: 78 });
    assert!(!reopened.accounts_for(&fork, drive) && !fork.accounts_for(&reopened, drive));
    assert!(old.stamp().is_before(&reopened.stamp()) && !reopened.stamp().is_before(&old.stamp()));
}

/// Old openings are dropped from the list, but the drive's record still distinguishes an old state
/// of the drive from a fork.
#[test]
fn a_fork_is_distinguished_from_an_old_state_after_many_openings() {
    let mut old = sample();
    let drive = old.drives[0].id;
    let mut newer = old.clone();
    newer.drives[0].left_at = old.stamp();
    newer.drives[0].confirmed.opening = old.lineage[0];
    newer.lineage = (100..108).map(|epoch| PoolOpening { epoch, nonce: epoch }).collect();
    assert!(newer.accounts_for(&old, drive));
    assert!(!newer.accounts_for(&old, old.drives[1].id) || newer.drives[1].confirmed.opening == old.epoch());
    let mut fork = old.clone();
    fork.lineage.push(PoolOpening { epoch: 3, nonce: 78 });
    assert!(!newer.accounts_for(&fork, drive));
    old.lineage.pop();
    assert!(newer.accounts_for(&old, drive), "the state before the newest one that the drive may hold");
    old.lineage[0].nonce += 1;
    assert!(!newer.accounts_for(&old, drive));
}

#[test]
fn drives_are_found_by_index_and_keys_are_redacted() {
    let superblock = sample();
    assert_eq!(superblock.drive(DriveIndex::new(4)), superblock.drives.get(4));
    assert_eq!(superblock.drive(DriveIndex::new(5)), None);
    assert_eq!(format!("{:?}", superblock.key), "PoolKey(..)");
}
