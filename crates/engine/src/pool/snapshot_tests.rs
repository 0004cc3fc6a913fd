//! Snapshots and clones without faults: their contents, usage and differences. The simulator tests
//! faults.

use super::tests::{create_options, drives, open_options, pattern, read, run};
use super::*;
use crate::Tuning;
use crate::{AttachedVolume, ChangedRange, ErrorKind, VolumeUsage};

const BLOCK: u64 = 4096;
const SIZE: u64 = 64 << 20;

async fn attach(pool: &Pool, name: &str) -> AttachedVolume {
    pool.open_volume(name).await.unwrap().attach()
}

async fn write(pool: &Pool, name: &str, block: u64, count: u64, seed: u64) {
    let data = pattern(seed, (count * BLOCK) as usize);
    attach(pool, name).await.write(block * BLOCK, &data.span()).await.unwrap();
}

async fn usage(pool: &Pool, name: &str) -> (u64, u64) {
    let VolumeUsage { referenced, exclusive } = pool.volume_usage(name, 0, SIZE).await.unwrap();
    (referenced / BLOCK, exclusive / BLOCK)
}

async fn changes(pool: &Pool, name: &str, base: &str) -> Vec<(u64, u64, bool)> {
    let changes = pool.volume_changes(name, base, 0, u64::MAX).await.unwrap();
    changes
        .iter()
        .map(|ChangedRange { offset, length, data }| (offset / BLOCK, length / BLOCK, *data))
        .collect()
}

/// Returns the number of live data blocks, after deleted volumes are freed.
async fn stored(pool: &Pool) -> u64 {
    loop {
        let volumes = pool.volumes().await.unwrap();
        if !volumes.iter().any(|volume| volume.deleting && volume.retained_by == 0) {
            return volumes.iter().map(|volume| volume.stored / BLOCK).sum();
        }
        reactor::Reactor::current().yield_now().await;
    }
}

#[test]
fn usage_and_changes_are_exact() {
    let drives = drives(5, 64 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", SIZE, 4096, 0).await.unwrap();
        pool.create_volume("other", SIZE, 4096, 0).await.unwrap();
        // Over both shards: a slice is 1,024 blocks.
        write(&pool, "a", 1000, 100, 1).await;
        pool.snapshot_volume("a@one", 0).await.unwrap();
        assert_eq!(usage(&pool, "a@one").await, (100, 0));
        assert_eq!(usage(&pool, "a").await, (100, 0));
        write(&pool, "a", 1010, 30, 2).await;
        write(&pool, "a", 5000, 5, 2).await;
        attach(&pool, "a").await.discard(1050 * BLOCK, 10 * BLOCK).await.unwrap();
        assert_eq!(usage(&pool, "a@one").await, (100, 40));
        assert_eq!(usage(&pool, "a").await, (95, 35));
        let expected = [(1010, 30, true), (1050, 10, false), (5000, 5, true)];
        assert_eq!(changes(&pool, "a", "a@one").await, expected);
        // In the other direction: the snapshot's blocks in these ranges.
        assert_eq!(
            changes(&pool, "a@one", "a").await,
            [(1010, 30, true), (1050, 10, true), (5000, 5, false)]
        );
        assert_eq!(changes(&pool, "a@one", "a@one").await, []);
        let error = pool.volume_changes("a", "other", 0, SIZE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let window = pool.volume_changes("a", "a@one", 1020 * BLOCK, 15 * BLOCK).await.unwrap();
        assert_eq!(window, [ChangedRange { offset: 1020 * BLOCK, length: 15 * BLOCK, data: true }]);

        pool.snapshot_volume("a@two", 0).await.unwrap();
        pool.clone_volume("a@one", "clone", 0).await.unwrap();
        // Blocks visible in the clone are not exclusive to the snapshot.
        assert_eq!(usage(&pool, "a@one").await, (100, 0));
        write(&pool, "clone", 1020, 5, 3).await;
        assert_eq!(usage(&pool, "a@one").await, (100, 5));
        assert_eq!(usage(&pool, "clone").await, (100, 5));
        assert_eq!(changes(&pool, "clone", "a@one").await, [(1020, 5, true)]);
        // Neither is an ancestor of the other.
        let expected = [(1010, 30, true), (1050, 10, true), (5000, 5, false)];
        assert_eq!(changes(&pool, "clone", "a@two").await, expected);
    });
}

#[test]
fn deletion_frees_exclusive_blocks_in_any_order() {
    let names = ["a@one", "a@two", "a@three", "clone"];
    let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1], [1, 2, 0, 3]];
    for order in orders {
        let drives = drives(5, 64 << 20);
        run(async || {
            create(&drives, &create_options("4+1")).await.unwrap();
            let (pool, _) = open(&drives, &open_options()).await.unwrap();
            pool.create_volume("a", SIZE, 4096, 0).await.unwrap();
            write(&pool, "a", 0, 60, 1).await;
            pool.snapshot_volume("a@one", 0).await.unwrap();
            write(&pool, "a", 10, 20, 2).await;
            pool.snapshot_volume("a@two", 0).await.unwrap();
            pool.clone_volume("a@two", "clone", 0).await.unwrap();
            write(&pool, "a", 20, 20, 3).await;
            write(&pool, "clone", 15, 10, 4).await;
            pool.snapshot_volume("a@three", 0).await.unwrap();
            attach(&pool, "a").await.discard(30 * BLOCK, 5 * BLOCK).await.unwrap();
            let contents = read(&attach(&pool, "a").await, 0, 80 * 4096).await;
            let mut before = stored(&pool).await;
            for index in order {
                let name = names[index];
                let (_, exclusive) = usage(&pool, name).await;
                pool.delete_volume(name).await.unwrap();
                // A snapshot with clones is retained until it has one child, but blocks that no
                // child can see are freed.
                let after = stored(&pool).await;
                assert_eq!(after, before - exclusive, "{name} of {order:?}");
                before = after;
                assert!(
                    read(&attach(&pool, "a").await, 0, 80 * 4096).await == contents,
                    "{name} of {order:?}"
                );
            }
            assert_eq!(stored(&pool).await, 55);
            assert_eq!(usage(&pool, "a").await, (55, 55));
            pool.close().await.unwrap();
            let report = crate::check(&drives).await.unwrap();
            assert!(report.findings.is_empty(), "{report:?}");
        });
    }
}

#[test]
fn a_chain_of_250_snapshots_is_read_with_little_map_memory() {
    let drives = drives(5, 64 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let tuning = Tuning { map_bytes: 0, ..Tuning::default() };
        let little = OpenOptions { tuning, ..open_options() };
        let (pool, _) = open(&drives, &little).await.unwrap();
        pool.create_volume("a", SIZE, 4096, 0).await.unwrap();
        for step in 0..250 {
            // Every layer has its own leaf there, and one block that no descendant has.
            write(&pool, "a", 300, 1, step).await;
            write(&pool, "a", step, 1, 1000 + step).await;
            pool.snapshot_volume(&format!("a@{step}"), 0).await.unwrap();
        }
        drop(pool);
    });
    run(async || {
        let tuning = Tuning { map_bytes: 0, ..Tuning::default() };
        let (pool, _) = open(&drives, &OpenOptions { tuning, ..open_options() }).await.unwrap();
        let volume = attach(&pool, "a").await;
        for step in 0..250 {
            let wanted = pattern(1000 + step, 4096);
            assert!(read(&volume, step * BLOCK, 4096).await == wanted.as_slice(), "{step}");
        }
        assert!(read(&volume, 300 * BLOCK, 4096).await == pattern(249, 4096).as_slice());
        let all = read(&volume, 0, 250 * 4096).await;
        for (step, block) in all.chunks(4096).enumerate() {
            assert!(block == pattern(1000 + step as u64, 4096).as_slice(), "{step}");
        }
        volume.discard(0, 10 * BLOCK).await.unwrap();
        assert_eq!(usage(&pool, "a").await, (241, 0));
        drop(volume);
        // From the middle, from the bottom, from the top.
        for step in (100..200).chain(0..100).chain((200..250).rev()) {
            pool.delete_volume(&format!("a@{step}")).await.unwrap();
        }
        assert_eq!(stored(&pool).await, 241);
        let volume = attach(&pool, "a").await;
        assert!(read(&volume, 249 * BLOCK, 4096).await == pattern(1249, 4096).as_slice());
        assert_eq!(read(&volume, 0, 4096).await, vec![0; 4096]);
    });
}

#[test]
fn a_group_is_taken_completely_or_refused() {
    let drives = drives(5, 64 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        for name in ["a", "b", "c"] {
            pool.create_volume(name, SIZE, 4096, 0).await.unwrap();
            write(&pool, name, 1000, 100, 1).await;
        }
        pool.snapshot_volume("b@old", 0).await.unwrap();
        let many: Vec<String> = (0..=pool.snapshot_group_max()).map(|n| format!("v{n}@s")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for (group, kind, text) in [
            (&["a@s", "a@t"][..], ErrorKind::Invalid, "'a' occurs twice"),
            (&[], ErrorKind::Invalid, "at least one volume"),
            (&many, ErrorKind::Invalid, "up to 32"),
            (&["a@s", "b"], ErrorKind::Invalid, "not a snapshot name"),
            (&["a@s", "d@s"], ErrorKind::NotFound, "'d'"),
            (&["a@old", "b@old"], ErrorKind::Exists, "'b@old'"),
        ] {
            let refused = pool.snapshot_volumes(group, 0).await.unwrap_err();
            assert_eq!(refused.kind(), kind, "{group:?}");
            assert!(refused.to_string().contains(text), "{refused}");
            assert_eq!(pool.volumes().await.unwrap().len(), 4, "{group:?}");
        }
        pool.snapshot_volumes(&["a@s", "c@s"], 7).await.unwrap();
        for name in ["a", "c"] {
            write(&pool, name, 1010, 30, 2).await;
        }
        drop(pool);
    });
    run(async || {
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let found: Vec<String> = pool.volumes().await.unwrap().into_iter().map(|info| info.name).collect();
        assert_eq!(found, ["a", "a@s", "b", "b@old", "c", "c@s"]);
        for name in ["a", "c"] {
            let snapshot = format!("{name}@s");
            assert_eq!(pool.volume_info(&snapshot).await.unwrap().unwrap().created, 7);
            assert_eq!(changes(&pool, name, &snapshot).await, [(1010, 30, true)]);
            let held = read(&attach(&pool, &snapshot).await, 1000 * BLOCK, 100 * 4096).await;
            assert!(held == pattern(1, 100 * 4096).as_slice(), "{snapshot}");
        }
    });
}

/// A group that one thick volume cannot join reserves nothing.
#[test]
fn a_refused_group_reserves_nothing() {
    let drives = drives(5, 64 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        let thick = |size| NewVolume { size, sector: 4096, thick: true, shards: None, now: 0 };
        pool.create_volume_with("small", thick(8 << 20)).await.unwrap();
        pool.create_volume_with("large", thick(120 << 20)).await.unwrap();
        write(&pool, "large", 0, 1, 1).await;
        // The largest volume for which there is space, within 1 MiB.
        let mut largest = 120 << 20;
        while pool.create_volume_with("rest", thick(largest)).await.is_err() {
            largest -= 1 << 20;
        }
        pool.delete_volume("rest").await.unwrap();
        stored(&pool).await;
        let refused = pool.snapshot_volumes(&["small@s", "large@s"], 0).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NoSpace, "{refused}");
        pool.create_volume_with("rest", thick(largest)).await.unwrap();
    });
}

/// Writes that a snapshot holds fail when the pool fails. Writers would retry forever otherwise.
#[test]
fn held_writes_fail_with_the_pool() {
    let drives = drives(5, 64 << 20);
    run(async || {
        create(&drives, &create_options("4+1")).await.unwrap();
        let (pool, _) = open(&drives, &open_options()).await.unwrap();
        pool.create_volume("a", SIZE, 4096, 0).await.unwrap();
        let volume = format::VolumeId::new(1);
        let shard = pool.shards()[0].local().unwrap();
        let before = shard.layer_for_writing(volume).await.unwrap();
        shard.hold_writes(volume, true);
        shard.fail(&crate::Error::new(ErrorKind::PoolFailed, "too many drives are lost"));
        assert_eq!(shard.layer_for_writing(volume).await.unwrap_err().kind(), ErrorKind::PoolFailed);
        // Once writes are no longer held, they fail because the log has failed.
        shard.hold_writes(volume, false);
        assert_eq!(shard.layer_for_writing(volume).await.unwrap(), before);
    });
}
