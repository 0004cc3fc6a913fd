//! Tests of the allocator against a set of blocks.

use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;

#[test]
fn runs_never_overlap_and_all_blocks_come_back() {
    let mut random = SmallRng::seed_from_u64(11);
    let mut allocator = Allocator::new(10, 100, 5000, std::iter::empty());
    let (mut taken, mut used): (Vec<BodyRun>, BTreeSet<u64>) = Default::default();
    for _ in 0..5000 {
        if random.random_bool(0.55) {
            let blocks = random.random_range(1..200);
            while allocator.frontier() < 5000 && allocator.free_blocks() < blocks {
                let next = allocator.next_frontier(300);
                allocator.advance(next);
            }
            let Some(runs) = allocator.allocate(blocks) else { continue };
            assert_eq!(runs.iter().map(|run| run.blocks).sum::<u64>(), blocks);
            for run in runs {
                for block in run.start..run.start + run.blocks {
                    assert!((10..5000).contains(&block) && used.insert(block), "block {block} twice");
                }
                taken.push(run);
            }
        } else if !taken.is_empty() {
            let run = taken.swap_remove(random.random_range(0..taken.len()));
            (run.start..run.start + run.blocks).for_each(|block| assert!(used.remove(&block)));
            allocator.free(run);
        }
        assert_eq!(allocator.free_blocks() + used.len() as u64, allocator.frontier() - 10);
    }
    taken.into_iter().for_each(|run| allocator.free(run));
    assert_eq!(allocator.gaps(), [BodyRun { start: 10, blocks: allocator.frontier() - 10 }]);
}

#[test]
fn gaps_between_used_runs_are_free() {
    let used = [BodyRun { start: 12, blocks: 3 }, BodyRun { start: 20, blocks: 5 }];
    let allocator = Allocator::new(10, 30, 100, used.into_iter());
    let gaps: Vec<_> = allocator.gaps().iter().map(|run| (run.start, run.blocks)).collect();
    assert_eq!(gaps, [(10, 2), (15, 5), (25, 5)]);
}

#[test]
#[should_panic(expected = "free already")]
fn freeing_a_run_twice_panics() {
    let mut allocator = Allocator::new(0, 10, 10, std::iter::empty());
    let run = allocator.allocate(4).unwrap()[0];
    allocator.free(run);
    allocator.free(run);
}
