//! Volumes on a part of a pool's shards: the choice of shards, and all operations on such volumes.

use reactor::Buffer;

use super::tests::{create_options, drives, open_options, pattern, run};
use super::*;
use crate::DriveSource;
use crate::ErrorKind;

const SLICE: u64 = 4 << 20;

fn on(shards: u16, size: u64) -> NewVolume {
    NewVolume { size, sector: 4096, thick: false, shards: Some(shards), now: 0 }
}

/// A pool of three shards.
async fn three_shard_pool(drives: &[Arc<dyn DriveSource>]) -> Pool {
    create(drives, &CreateOptions { shards: 3, ..create_options("4+1") }).await.unwrap();
    open(drives, &open_options()).await.unwrap().0
}

async fn spreads(pool: &Pool) -> Vec<(String, (u16, u16))> {
    let volumes = pool.volumes().await.unwrap();
    volumes.into_iter().map(|volume| (volume.name, (volume.spread.first, volume.spread.shards))).collect()
}

/// Returns the bytes of data in each shard.
async fn stored(pool: &Pool) -> Vec<u64> {
    let mut stored = Vec::new();
    for handle in pool.shards().iter() {
        let count = |shard: std::rc::Rc<crate::shard::Shard>| async move {
            let layers = (16..40).map(format::LayerId::new);
            layers.map(|layer| shard.stored(layer) * 4096).sum::<u64>()
        };
        stored.push(handle.call(count).await.unwrap());
    }
    stored
}

#[test]
fn volumes_go_to_the_shards_with_the_fewest_bytes() {
    run(async || {
        let pool = three_shard_pool(&drives(5, 64 << 20)).await;
        for (name, shards, size) in
            [("a", 1, 3 * SLICE), ("b", 1, SLICE), ("c", 1, SLICE), ("d", 2, 2 * SLICE), ("e", 1, SLICE)]
        {
            pool.create_volume_with(name, on(shards, size)).await.unwrap();
        }
        pool.create_volume("f", SLICE, 4096, 0).await.unwrap();
        let expected = [("a", 0, 1), ("b", 1, 1), ("c", 2, 1), ("d", 1, 2), ("e", 1, 1), ("f", 0, 3)];
        assert_eq!(spreads(&pool).await, expected.map(|(name, first, of)| (name.to_owned(), (first, of))));
        // Deleted volumes do not count.
        pool.delete_volume("a").await.unwrap();
        pool.create_volume_with("g", on(1, SLICE)).await.unwrap();
        assert_eq!(spreads(&pool).await.last().unwrap().1, (0, 1));
        for shards in [0, 4] {
            let error = pool.create_volume_with("x", on(shards, SLICE)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("the pool has 3"), "{error}");
            assert!(error.to_string().contains("1 to 3"), "{error}");
        }
        pool.close().await.unwrap();
    });
}

#[test]
fn all_operations_work_on_a_volume_on_two_of_three_shards() {
    run(async || {
        let drives = drives(5, 64 << 20);
        let pool = three_shard_pool(&drives).await;
        for (name, size) in [("first", 2 * SLICE), ("second", 4 * SLICE), ("third", SLICE)] {
            pool.create_volume_with(name, on(1, size)).await.unwrap();
        }
        // Starts at the last shard and wraps around to the first.
        pool.create_volume_with("w", on(2, 5 * SLICE)).await.unwrap();
        assert_eq!(spreads(&pool).await.last(), Some(&("w".into(), (2, 2))));
        let volume = pool.open_volume("w").await.unwrap();
        let data = pattern(3, 4 << 20);
        let write = async |from: u64| volume.attach().write(from, &data.span()).await.unwrap();
        let expect = async |name: &str, from: u64, expected: &[u8]| {
            let found = Buffer::new(expected.len());
            let volume = pool.open_volume(name).await.unwrap().attach();
            volume.read(from, &found.span()).await.unwrap();
            assert!(found.as_slice() == expected, "{name} from {from}");
        };
        for slice in 0..5 {
            write(slice * SLICE).await;
        }
        assert_eq!(stored(&pool).await, [2 * SLICE, 0, 3 * SLICE]);
        pool.snapshot_volume("w@s", 0).await.unwrap();
        pool.clone_volume("w@s", "c", 0).await.unwrap();
        volume.attach().write_zeroes(SLICE + 4096, 2 * SLICE).await.unwrap();
        let changes = pool.volume_changes("w", "w@s", 0, u64::MAX).await.unwrap();
        assert_eq!(changes, [ChangedRange { offset: SLICE + 4096, length: 2 * SLICE, data: false }]);
        let zeros = vec![0; 4096];
        expect("w", 2 * SLICE, &zeros).await;
        expect("c", 2 * SLICE, data.as_slice()).await;
        let usage = pool.volume_usage("w", 0, u64::MAX).await.unwrap();
        assert_eq!((usage.referenced, usage.exclusive), (3 * SLICE, 0));
        drop(volume);
        pool.roll_back_volume("w@s", 0).await.unwrap();
        pool.resize_volume("w", 3 * SLICE + 8192, true).await.unwrap();
        pool.resize_volume("w", 5 * SLICE, false).await.unwrap();
        expect("w", 3 * SLICE, &data.as_slice()[..8192]).await;
        expect("w", 3 * SLICE + 8192, &zeros).await;
        let extents = pool.open_volume("w").await.unwrap().attach().extents(0, 5 * SLICE).await.unwrap();
        let runs: Vec<(u64, bool)> = extents.iter().map(|extent| (extent.length, extent.data)).collect();
        assert_eq!(runs, [(3 * SLICE + 8192, true), (2 * SLICE - 8192, false)]);
        pool.close().await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let found = spreads(&pool).await;
        for name in ["c", "w", "w@s"] {
            assert!(found.contains(&(name.to_owned(), (2, 2))), "{found:?}");
        }
        let volume = pool.open_volume("w").await.unwrap();
        let found = Buffer::new(8192);
        volume.attach().read(3 * SLICE, &found.span()).await.unwrap();
        assert!(found.as_slice() == &data.as_slice()[..8192]);
        assert_eq!(stored(&pool).await[1], 0);
        drop(volume);
        pool.close().await.unwrap();
    });
}
