//! Zeros and trims in a full pool: they succeed where they need no space.

use reactor::Buffer;

use super::tests::{create_options, drives, open_options, pattern, read, run};
use super::*;
use crate::{AttachedVolume, ErrorKind};

const BLOCK: u64 = 4096;
/// Bytes that a leaf of the map covers.
const LEAF: u64 = format::NODE_ENTRIES as u64 * BLOCK;
const MIB: u64 = 1 << 20;

async fn attach(pool: &Pool, name: &str) -> AttachedVolume {
    pool.open_volume(name).await.unwrap().attach()
}

/// Fills the pool with data of another volume.
async fn fill(pool: &Pool) {
    pool.create_volume("filler", 1 << 30, 4096, 0).await.unwrap();
    let volume = attach(pool, "filler").await;
    for bytes in [1 << 20, 4096] {
        let data = pattern(3, bytes);
        let mut offset = 0;
        let refused = loop {
            match volume.write(512 * MIB + offset, &data.span()).await {
                Ok(()) => offset += bytes as u64,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// The stored block is the last one of a leaf, and the next leaf does not exist.
#[test]
fn zeros_over_a_hole_without_a_leaf_are_accepted() {
    let drives = drives(5, 24 << 20);
    let stored = pattern(5, 4096);
    let last = LEAF - BLOCK;
    let block_and_zeros = [stored.as_slice(), &[0; 4096]].concat();
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 64 * MIB, 512, 0).await.unwrap();
        let volume = attach(&pool, "a").await;
        volume.write(last, &stored.span()).await.unwrap();
        fill(&pool).await;
        // Half of the stored block and half of the hole behind it, by each operation.
        volume.write(last + 2048, &Buffer::zeroed(4096).span()).await.unwrap();
        volume.write_zeroes(last + 2048, 4096).await.unwrap();
        let expected = Buffer::copy_of(&[&stored.as_slice()[..2048], &[0; 6144]].concat());
        assert_eq!(read(&volume, last, 8192).await, expected.as_slice());
        let data = Buffer::copy_of(&block_and_zeros);
        let compared = volume.compare_and_write(last, &expected.span(), &data.span()).await.unwrap();
        assert_eq!(compared, crate::Comparison::Written);
        // Whole blocks, and ranges that hold nothing.
        volume.write(last, &Buffer::copy_of(&block_and_zeros).span()).await.unwrap();
        volume.write(2 * LEAF, &Buffer::zeroed(64 << 10).span()).await.unwrap();
        volume.write_zeroes(3 * LEAF, 32 * MIB).await.unwrap();
        volume.discard(3 * LEAF + 512, 32 * MIB).await.unwrap();
        let refused = volume.write(last + BLOCK, &stored.span()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        // Dropped without closing, as in a crash.
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let volume = attach(&pool, "a").await;
        assert_eq!(read(&volume, last, 8192).await, block_and_zeros);
        assert!(is_zero(&read(&volume, 2 * LEAF, 1 << 20).await));
    });
}

/// Above a snapshot, zeros hide its blocks with entries in leaves of the volume's own layer. In a
/// full pool they may use such leaves, and must not take the space of trims for new ones.
#[test]
fn zeros_above_a_snapshot_create_no_leaf() {
    let drives = drives(5, 24 << 20);
    let data = pattern(5, 64 << 10);
    let (shared, own) = (8 * MIB, 16 * MIB);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", 64 * MIB, 512, 0).await.unwrap();
        let volume = attach(&pool, "a").await;
        for offset in [0, LEAF - BLOCK * 16, shared] {
            volume.write(offset, &data.span()).await.unwrap();
        }
        pool.snapshot_volume("a@one", 0).await.unwrap();
        for offset in [0, LEAF - BLOCK, own] {
            volume.write(offset, &data.span().slice(0..4096)).await.unwrap();
        }
        fill(&pool).await;

        // The volume's own layer has a leaf.
        volume.discard(BLOCK, 7 * BLOCK).await.unwrap();
        volume.write(8 * BLOCK, &Buffer::zeroed(8192).span()).await.unwrap();
        let found = read(&volume, 0, 64 << 10).await;
        assert_eq!(found[..4096], data.as_slice()[..4096]);
        assert!(is_zero(&found[4096..10 * 4096]));
        assert_eq!(found[10 * 4096..], data.as_slice()[10 * 4096..]);

        // It has none, and the snapshot's blocks are visible. A refused write creates a leaf in
        // memory, which is not stored.
        for round in 0..3 {
            let zeros = Buffer::zeroed(8192);
            let refusals = [
                volume.discard(shared, 8192).await,
                volume.write_zeroes(shared + 512, 8192).await,
                volume.write(shared, &zeros.span()).await,
                volume.write(shared + 512, &zeros.span().slice(0..512)).await,
            ];
            for refused in refusals {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::NoSpace, "round {round}");
            }
        }
        assert!(read(&volume, shared, 64 << 10).await == data.as_slice());

        // It has none, and nothing is visible: beside the snapshot's blocks, and where no layer has
        // a leaf. The mixed write replaces a block of the last leaf before.
        volume.discard(shared + (64 << 10), 64 << 10).await.unwrap();
        volume.write_zeroes(shared + (128 << 10) + 512, 8192).await.unwrap();
        volume.write(shared + (256 << 10), &Buffer::zeroed(8192).span()).await.unwrap();
        let block_and_zeros = [&data.as_slice()[..4096], &[0; 4096]].concat();
        volume.write(LEAF - BLOCK, &Buffer::copy_of(&block_and_zeros).span()).await.unwrap();
        volume.write(LEAF - 512, &Buffer::zeroed(1024).span()).await.unwrap();

        // A long range frees the volume's own blocks behind those that it cannot hide.
        let refused = volume.discard(shared, own + MIB - shared).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        assert!(read(&volume, shared, 64 << 10).await == data.as_slice());
        assert!(is_zero(&read(&volume, own, 4096).await));
        volume.flush().await.unwrap();
        // Dropped without closing, as in a crash.
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let volume = attach(&pool, "a").await;
        let found = read(&volume, LEAF - BLOCK, 8192).await;
        assert_eq!(found[..3584], data.as_slice()[..3584]);
        assert!(is_zero(&found[3584..]));
        assert!(read(&volume, shared, 64 << 10).await == data.as_slice());
        assert!(is_zero(&read(&volume, own, 4096).await));
        let snapshot = attach(&pool, "a@one").await;
        assert!(read(&snapshot, 0, 64 << 10).await == data.as_slice());
        drop(snapshot);
        // Deleting data makes space for the leaf.
        pool.delete_volume("filler").await.unwrap();
        while pool.volumes().await.unwrap().iter().any(|volume| volume.deleting) {
            reactor::Reactor::current().yield_now().await;
        }
        volume.discard(shared, 64 << 10).await.unwrap();
        assert!(is_zero(&read(&volume, shared, 64 << 10).await));
        drop(volume);
        pool.close().await.unwrap();
    });
}

/// A volume with a reserved size hides blocks of its snapshot within the reservation.
#[test]
fn zeros_above_a_snapshot_use_the_reservation() {
    let drives = drives(5, 24 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let thick = NewVolume { size: 8 * MIB, sector: 4096, thick: true, shards: None, now: 0 };
        pool.create_volume_with("a", thick).await.unwrap();
        let volume = attach(&pool, "a").await;
        volume.write(0, &pattern(5, 1 << 20).span()).await.unwrap();
        pool.snapshot_volume("a@one", 0).await.unwrap();
        fill(&pool).await;
        volume.discard(0, 512 << 10).await.unwrap();
        volume.write(512 << 10, &Buffer::zeroed(512 << 10).span()).await.unwrap();
        assert!(is_zero(&read(&volume, 0, 1 << 20).await));
    });
}
