//! Compare-and-write, copies and identities of volumes, on memory drives.

use reactor::Buffer;

use super::tests::{create_options, drives, open_options, pattern, read, run};
use super::*;
use crate::{Comparison, ErrorKind, VolumeUid};

/// Runs a test with a new pool of two shards.
fn with_pool(test: impl AsyncFnOnce(&Pool)) {
    let drives = drives(3, 64 << 20);
    run(async || {
        create(&drives, &create_options("2+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        test(&pool).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn a_range_is_written_only_if_it_holds_the_expected_bytes() {
    with_pool(async |pool| {
        pool.create_volume("a", 64 << 20, 512, 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        // Ranges of one sector, within a block, of whole blocks, and over the border of two blocks;
        // in both shards.
        for (offset, length) in
            [(0, 512), (1024, 2048), (4 << 20, 4096), ((5 << 20) + 3584, 1024), ((8 << 20) - 8192, 8192)]
        {
            let (zeros, first, second) =
                (Buffer::zeroed(length), pattern(offset + 1, length), pattern(offset + 2, length));
            let swap = async |expected: &Buffer, data: &Buffer| {
                volume.compare_and_write(offset, &expected.span(), &data.span()).await.unwrap()
            };
            assert_eq!(swap(&zeros, &first).await, Comparison::Written);
            assert!(read(&volume, offset, length).await == first.as_slice(), "{offset}");
            let index = first.as_slice().iter().position(|byte| *byte != 0).unwrap() as u64;
            assert_eq!(swap(&zeros, &second).await, Comparison::Differs { at: offset + index });
            assert!(read(&volume, offset, length).await == first.as_slice(), "{offset} is unchanged");
            let mut almost = pattern(offset + 1, length);
            *almost.as_mut_slice().last_mut().unwrap() ^= 1;
            let last = offset + length as u64 - 1;
            assert_eq!(swap(&almost, &second).await, Comparison::Differs { at: last });
            assert_eq!(swap(&first, &second).await, Comparison::Written);
            assert!(read(&volume, offset, length).await == second.as_slice(), "{offset}");
            assert_eq!(swap(&second, &zeros).await, Comparison::Written);
            assert!(read(&volume, offset, length).await == zeros.as_slice(), "{offset}");
        }
        drop(volume);
    });
}

#[test]
fn of_concurrent_swaps_each_sees_the_one_before() {
    const SWAPS: u64 = 32;
    with_pool(async |pool| {
        pool.create_volume("a", 64 << 20, 512, 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        // Each task increments a counter, as a lock of a cluster does.
        let increment = async || {
            let mut seen = Buffer::zeroed(512);
            loop {
                let mut next = Buffer::zeroed(512);
                let count = u64::from_le_bytes(seen.as_slice()[..8].try_into().unwrap());
                next.as_mut_slice()[..8].copy_from_slice(&(count + 1).to_le_bytes());
                match volume.compare_and_write(4096, &seen.span(), &next.span()).await.unwrap() {
                    Comparison::Written => return Ok(()),
                    Comparison::Differs { .. } => {
                        seen = Buffer::new(512);
                        volume.read(4096, &seen.span()).await.unwrap();
                    }
                }
            }
        };
        crate::join_all::join_all((0..SWAPS).map(|_| increment())).await.unwrap();
        let count = read(&volume, 4096, 8 * 64).await;
        assert_eq!(u64::from_le_bytes(count[..8].try_into().unwrap()), SWAPS);
        drop(volume);
    });
}

#[test]
fn ranges_that_are_not_atomic_are_refused() {
    with_pool(async |pool| {
        pool.create_volume("a", 64 << 20, 512, 0).await.unwrap();
        pool.snapshot_volume("a@s", 0).await.unwrap();
        let volume = pool.open_volume("a").await.unwrap().attach();
        let max = pool.atomic_write_bytes();
        let swap = async |offset: u64, expected: usize, length: usize| {
            let (expected, data) = (Buffer::zeroed(expected), Buffer::zeroed(length));
            volume
                .compare_and_write(offset, &expected.span(), &data.span())
                .await
                .map_err(|error| error.kind())
        };
        let largest = usize::try_from(max).unwrap();
        assert_eq!(swap(0, largest, largest).await, Ok(Comparison::Written));
        for (offset, expected, length) in [
            (0, largest + 4096, largest + 4096),
            (512, largest, largest),
            ((4 << 20) - 512, 1024, 1024),
            (64 << 20, 512, 512),
            (0, 512, 1024),
            (0, 0, 0),
        ] {
            assert_eq!(swap(offset, expected, length).await, Err(ErrorKind::Invalid), "{offset} {length}");
        }
        drop(volume);
        let snapshot = pool.open_volume("a@s").await.unwrap().attach();
        let zeros = Buffer::zeroed(512).span();
        let refused = snapshot.compare_and_write(0, &zeros, &zeros).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnly);
    });
}

#[test]
fn a_copy_has_the_data_and_the_holes_of_its_source() {
    with_pool(async |pool| {
        for name in ["a", "b"] {
            pool.create_volume(name, 32 << 20, 512, 0).await.unwrap();
        }
        let source = pool.open_volume("a").await.unwrap().attach();
        let target = pool.open_volume("b").await.unwrap().attach();
        let data = pattern(3, 6 << 20);
        source.write(1 << 20, &data.span()).await.unwrap();
        source.write((20 << 20) + 512, &pattern(4, 1024).span()).await.unwrap();
        // The holes of the source replace the data of the target.
        target.write(16 << 20, &pattern(5, 1 << 20).span()).await.unwrap();
        target.copy_from(&source, 512, 512, (32 << 20) - 1024).await.unwrap();
        for offset in (0..32u64 << 20).step_by(1 << 20) {
            let (copied, expected) =
                (read(&target, offset, 1 << 20).await, read(&source, offset, 1 << 20).await);
            assert!(copied == expected, "{offset}");
        }
        assert!(target.extents(8 << 20, 8 << 20).await.unwrap().iter().all(|extent| !extent.data));

        // Within a volume, and to another offset.
        source.copy_from(&source, 1 << 20, 10 << 20, 6 << 20).await.unwrap();
        assert!(read(&source, 10 << 20, 6 << 20).await == data.as_slice());
        let overlap = source.copy_from(&source, 0, 4096, 8192).await.unwrap_err();
        assert_eq!(overlap.kind(), ErrorKind::Invalid);
        let beyond = target.copy_from(&source, 31 << 20, 0, 2 << 20).await.unwrap_err();
        assert_eq!(beyond.kind(), ErrorKind::Invalid);
        drop((source, target));
    });
}

#[test]
fn an_identity_stays_and_is_not_given_again() {
    with_pool(async |pool| {
        let uid = async |name: &str| pool.open_volume(name).await.unwrap().uid();
        pool.create_volume("a", 1 << 20, 512, 100).await.unwrap();
        let first = uid("a").await;
        pool.snapshot_volume("a@s", 200).await.unwrap();
        pool.resize_volume("a", 2 << 20, false).await.unwrap();
        pool.roll_back_volume("a@s", 300).await.unwrap();
        assert_eq!(uid("a").await, first);
        assert_ne!(uid("a@s").await, first);
        let listed: Vec<VolumeUid> = pool.volumes().await.unwrap().iter().map(|info| info.uid).collect();
        assert!(listed.contains(&first));
        pool.create_volume("b", 1 << 20, 512, 400).await.unwrap();
        let deleted = uid("b").await;
        pool.delete_volume("b").await.unwrap();
        while pool.volume_info("b").await.unwrap().is_some() {
            reactor::Reactor::current().yield_now().await;
        }
        pool.create_volume("b", 1 << 20, 512, 400).await.unwrap();
        assert_ne!(uid("b").await, deleted);
        assert_eq!(first.to_string().len(), 16);
    });
}
