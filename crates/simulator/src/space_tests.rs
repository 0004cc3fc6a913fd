//! Space: the blocks of deleted volumes and of merged layers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::Pool;
use format::limits::SLICE;
use reactor::{Buffer, Reactor};

use crate::disk::Faults;
use crate::model::content;
use crate::random::Random;
use crate::repair_tests::{BLOCK, compare, fill, machine, with_pool};
use crate::run::{BootEnd, Setup, check_findings};

/// Creates a volume with blocks in three shards.
async fn fill_three_shards(pool: &Pool) {
    pool.create_volume("v", 3 * SLICE, 4096, 0).await.unwrap();
    let volume = pool.open_volume("v").await.unwrap().attach();
    for slice in 0..3 {
        volume.write(slice * SLICE, &Buffer::copy_of(&[7; 64 * BLOCK as usize]).span()).await.unwrap();
    }
    volume.flush().await.unwrap();
}

/// Deletes the volume and waits until it is freed.
async fn delete_and_wait(pool: &Pool) {
    if pool.volume_info("v").await.unwrap().is_some_and(|info| !info.deleting) {
        pool.delete_volume("v").await.unwrap();
    }
    while pool.volume_info("v").await.unwrap().is_some() {
        Reactor::current().sleep(Duration::from_millis(1)).await;
    }
}

/// The record of a deleted volume is removed only when the blocks that its layer held are durably
/// free in every shard (F3): a power cut at any drive operation of a deletion leaks no block.
#[test]
fn a_deletion_cut_at_any_point_frees_the_blocks_of_all_shards() {
    let setup = Setup { shards: 3, ..Setup::small("1+1", 2) };
    let mut cuts = 0;
    for (cut, outcome) in (1..60).flat_map(|cut| (0..12).map(move |outcome| (cut, outcome))) {
        let machine = machine(&setup, 500 + 100 * outcome + cut);
        with_pool(&machine, fill_three_shards);
        let this = machine.clone();
        let ended = machine.boot(async move || {
            let (pool, _) = this.open().await.unwrap();
            this.cut_after(cut);
            delete_and_wait(&pool).await;
            Reactor::current().sleep(Duration::from_secs(1)).await;
        });
        machine.cut_power();
        cuts += u64::from(ended == BootEnd::PowerCut);
        with_pool(&machine, delete_and_wait);
        let report = machine.check().unwrap();
        check_findings(&report, &[]).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        assert_eq!((report.volumes, report.data_blocks), (0, 0), "cut {cut}, outcome {outcome}");
    }
    assert!(cuts > 30, "{cuts} cuts during a deletion");
}

/// Writes blocks of a volume, 16 at a time, in turns with those of a second volume, so that every
/// segment holds data of both.
async fn fill_in_turns(pool: &Pool, names: [&str; 2], blocks: u64) {
    let mut volumes = Vec::new();
    for name in names {
        pool.create_volume(name, blocks * BLOCK, 4096, 0).await.unwrap();
        volumes.push(pool.open_volume(name).await.unwrap().attach());
    }
    for first in (0..blocks).step_by(16) {
        let bytes: Vec<u8> = (first..first + 16).flat_map(|block| content(3, block, 4096)).collect();
        for volume in &volumes {
            volume.write(first * BLOCK, &Buffer::copy_of(&bytes).span()).await.unwrap();
        }
    }
    volumes.last().unwrap().flush().await.unwrap();
}

/// Deletes a volume or snapshot, and waits until its blocks are free.
async fn delete(pool: &Pool, name: &str) {
    pool.delete_volume(name).await.unwrap();
    while pool.volume_info(name).await.unwrap().is_some() {
        Reactor::current().sleep(Duration::from_millis(1)).await;
    }
    for _ in 0..3 {
        pool.checkpoint().await.unwrap();
    }
}

/// The headers of a segment name the layer that a block was written to. The cleaner finds the block
/// in the layer into which that one was merged, as long as the segment exists: after checkpoints,
/// and after an opening.
#[test]
fn blocks_of_merged_layers_are_moved() {
    let setup = Setup { drives: vec![(4 << 20) + 80 * (128 << 10); 3], ..Setup::small("2+1", 3) };
    for reopened in [false, true] {
        let machine = machine(&setup, 50);
        let merge = async |pool: &Pool| {
            fill_in_turns(pool, ["kept", "garbage"], 1200).await;
            pool.snapshot_volume("kept@one", 0).await.unwrap();
            delete(pool, "kept@one").await;
        };
        let use_rest = async |pool: &Pool| {
            delete(pool, "garbage").await;
            let capacity = pool.status().await.unwrap().space.capacity_blocks;
            pool.create_volume("big", 1 << 30, 4096, 0).await.unwrap();
            let volume = pool.open_volume("big").await.unwrap().attach();
            let data = Buffer::copy_of(&content(6, 0, 4096).repeat(16));
            let mut blocks = 0;
            while volume.write(blocks * BLOCK, &data.span()).await.is_ok() {
                blocks += 16;
            }
            assert!(blocks + 1200 > capacity * 9 / 10, "{blocks} of {capacity} blocks");
            compare(pool, "kept", 3).await;
        };
        if reopened {
            with_pool(&machine, merge);
            with_pool(&machine, use_rest);
        } else {
            with_pool(&machine, async |pool| {
                merge(pool).await;
                use_rest(pool).await;
            });
        }
        check_findings(&machine.check().unwrap(), &[]).unwrap();
    }
}

/// Snapshots are deleted while the cleaner moves blocks of their layers: a move that was prepared
/// before a layer is removed never reaches the removed layer.
#[test]
fn layers_are_removed_while_the_cleaner_moves_their_blocks() {
    let setup = Setup { drives: vec![(4 << 20) + 60 * (128 << 10); 3], ..Setup::small("2+1", 3) };
    for seed in 0..4 {
        let machine = machine(&setup, 60 + seed);
        let random = Random::new(seed);
        let moved = with_pool(&machine, async |pool| {
            let capacity = pool.status().await.unwrap().space.capacity_blocks;
            let blocks = capacity * 3 / 4 / 8 * 8;
            let volume = Rc::new(fill(pool, "v", blocks, 3).await);
            let stop = Rc::new(Cell::new(false));
            // Some reads of the cleaner take longer than the removal of a layer.
            let stall = |stall| {
                machine.disks.iter().for_each(|disk| disk.set_faults(Faults { stall, ..Faults::default() }));
            };
            stall(20);
            // The cleaner is never idle.
            let writers: Vec<_> = (0..4)
                .map(|writer| {
                    let (volume, stop, random) =
                        (volume.clone(), stop.clone(), Random::new(seed * 4 + writer));
                    Reactor::current().spawn(async move {
                        while !stop.get() {
                            let first = random.below(blocks / 8) * 8;
                            let bytes: Vec<u8> =
                                (first..first + 8).flat_map(|block| content(3, block, 4096)).collect();
                            // A full pool refuses blocks that a snapshot shares.
                            let _ = volume.write(first * BLOCK, &Buffer::copy_of(&bytes).span()).await;
                        }
                    })
                })
                .collect();
            for _ in 0..80 {
                pool.snapshot_volume("v@one", 0).await.unwrap();
                Reactor::current().sleep(Duration::from_micros(random.below(200_000))).await;
                pool.delete_volume("v@one").await.unwrap();
                while pool.volume_info("v@one").await.unwrap().is_some() {
                    Reactor::current().sleep(Duration::from_micros(100)).await;
                }
            }
            stop.set(true);
            for writer in writers {
                writer.await;
            }
            stall(0);
            drop(volume);
            compare(pool, "v", 3).await;
            pool.status().await.unwrap().shards[0].log.moved_blocks
        });
        assert!(moved > 2000, "{moved} blocks moved");
        check_findings(&machine.check().unwrap(), &[]).unwrap();
    }
}
