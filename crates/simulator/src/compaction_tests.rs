//! Compaction: cleaning when only the checkpoint reserve is left.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use engine::{AttachedVolume, Pool, PoolStatus};
use reactor::{Buffer, Reactor};

use crate::model::content;
use crate::repair_tests::{BLOCK, machine, with_pool};
use crate::run::{Machine, Setup, check_findings};

const VALUE: u64 = 3;
/// Crashes of one pool: at least and at most this many, until a compaction has run.
const ROUNDS_MIN: u64 = 60;
const ROUNDS_MAX: u64 = 300;

/// Sums of a test's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CompactionCounts {
    compactions: u64,
    overruns: u64,
    refused_checkpoints: u64,
}

impl CompactionCounts {
    fn of(status: &PoolStatus) -> Self {
        let shard = &status.shards[0];
        Self {
            compactions: shard.compactions,
            overruns: shard.compaction_overruns,
            refused_checkpoints: shard.checkpoints_refused,
        }
    }

    fn add(&mut self, other: Self) {
        self.compactions += other.compactions;
        self.overruns += other.overruns;
        self.refused_checkpoints += other.refused_checkpoints;
    }
}

async fn write(volume: &AttachedVolume, first: u64, count: u64) -> engine::Result<()> {
    let bytes: Vec<u8> = (first..first + count).flat_map(|block| content(VALUE, block, 4096)).collect();
    volume.write(first * BLOCK, &Buffer::copy_of(&bytes).span()).await
}

/// Fills the pool, and discards every second block: all segments are half garbage. Returns the
/// number of blocks.
async fn fill_with_garbage(pool: &Pool) -> u64 {
    pool.create_volume("v", 1 << 30, 4096, 0).await.unwrap();
    let volume = pool.open_volume("v").await.unwrap().attach();
    let mut blocks = 0;
    while write(&volume, blocks, 8).await.is_ok() {
        blocks += 8;
    }
    for block in (1..blocks).step_by(2) {
        volume.discard(block * BLOCK, BLOCK).await.unwrap();
    }
    volume.flush().await.unwrap();
    blocks
}

/// Returns true if only the checkpoint reserve of a pool with one shard is left: half of the 16
/// segments of its reserve.
fn is_exhausted(status: &PoolStatus) -> bool {
    status.space.free_segments == 0 && status.space.reserve_segments <= 8
}

/// Opens the pool, changes its catalogue and its map, and cuts the power: the rest of the open
/// segments is wasted, and the cleaner has no time. If only the checkpoint reserve is left, the
/// pool has two seconds to gain space.
fn crash(machine: &Rc<Machine>, blocks: u64, round: u64) -> CompactionCounts {
    let last = Rc::new(Cell::new(CompactionCounts::default()));
    let (this, seen) = (machine.clone(), last.clone());
    machine.boot(async move || {
        let (pool, _) = this.open().await.unwrap();
        let status = pool.status().await.unwrap();
        let volume = pool.open_volume("v").await.unwrap().attach();
        let changes = pool.clone();
        let changes = Reactor::current().spawn(async move {
            let _ = changes.create_volume(&format!("tmp{round}"), 4096, 4096, 0).await;
            let _ = write(&volume, round * 34 % blocks, 1).await;
        });
        if is_exhausted(&status) {
            for _ in 0..200 {
                seen.set(CompactionCounts::of(&pool.status().await.unwrap()));
                Reactor::current().sleep(Duration::from_millis(10)).await;
            }
        } else {
            // Long enough to open the segments.
            Reactor::current().sleep(Duration::from_micros(800)).await;
            let checkpointed = pool.clone();
            let checkpoint = Reactor::current().spawn(async move { checkpointed.checkpoint().await });
            Reactor::current().sleep(Duration::from_micros(500)).await;
            seen.set(CompactionCounts::of(&pool.status().await.unwrap()));
            drop(checkpoint);
        }
        drop(changes);
    });
    machine.cut_power();
    last.get()
}

/// Wastes the last segments of a pool by crashes, with a drive missing or not. Verifies the data,
/// and returns the counts of compactions.
fn compact_after_crashes(scheme: &str, drives: usize, is_degraded: bool, seed: u64) -> CompactionCounts {
    let setup = Setup { drives: vec![(4 << 20) + 70 * (128 << 10); drives], ..Setup::small(scheme, drives) };
    let machine = machine(&setup, 900 + seed);
    // All segments lack the column of the drive.
    machine.absent.borrow_mut()[0] = is_degraded;
    let blocks = with_pool(&machine, fill_with_garbage);
    let mut counts = CompactionCounts::default();
    for round in 0..ROUNDS_MAX {
        counts.add(crash(&machine, blocks, round));
        if round >= ROUNDS_MIN && counts.compactions > 0 {
            break;
        }
    }
    with_pool(&machine, async |pool| {
        let volume = pool.open_volume("v").await.unwrap().attach();
        for block in 0..blocks {
            let buffer = Buffer::new(4096);
            volume.read(block * BLOCK, &buffer.span()).await.unwrap();
            let expected = if block % 2 == 0 { content(VALUE, block, 4096) } else { vec![0; 4096] };
            assert!(buffer.as_slice() == expected, "{scheme} {seed}: block {block}");
        }
        // The pool is usable again.
        for block in (1..blocks).step_by(8) {
            write(&volume, block, 1).await.unwrap();
        }
        counts.add(CompactionCounts::of(&pool.status().await.unwrap()));
    });
    check_findings(&machine.check().unwrap(), &[]).unwrap();
    counts
}

/// A pool whose last segments were wasted by crashes gains space by compactions, also without a
/// drive. Each needs no more segments than its plan, no checkpoint is refused, and no data is lost
/// (S4).
#[test]
fn compactions_need_no_more_than_their_plan() {
    for (scheme, drives) in [("1+1", 2), ("2+1", 3), ("4+1", 5)] {
        for is_degraded in [false, true] {
            let mut counts = CompactionCounts::default();
            for seed in 0..4 {
                counts.add(compact_after_crashes(scheme, drives, is_degraded, seed));
            }
            assert!(counts.compactions >= 4, "{scheme}, degraded: {is_degraded}: {counts:?}");
            assert_eq!((counts.overruns, counts.refused_checkpoints), (0, 0), "{scheme}: {counts:?}");
        }
    }
}
