//! Slices, pieces and extents: arithmetic over a volume's address space.

use super::extents::trim_to;
use super::*;

#[test]
fn slices_deal_every_block_to_one_place() {
    for shards in 1..5 {
        let slices = Slices::new(shards);
        let mut next = vec![0; shards];
        for block in 0..10 * Slices::BLOCKS {
            let (shard, local) = slices.place(block);
            assert_eq!(local, next[shard], "blocks of a shard come in order, without gaps");
            next[shard] += 1;
        }
    }
}

#[test]
fn local_bounds_count_the_blocks_before() {
    for shards in 1..4 {
        let slices = Slices::new(shards);
        for block in (0..7 * Slices::BLOCKS).step_by(97) {
            for shard in 0..shards {
                let before = (0..block).filter(|other| slices.place(*other).0 == shard).count() as u64;
                assert_eq!(
                    slices.local_bound(shard, block),
                    before,
                    "shard {shard} of {shards}, block {block}"
                );
            }
        }
    }
}

#[test]
fn extents_are_cut_to_the_range() {
    let extent = |length, data| Extent { length, data };
    let mut extents = vec![extent(4096, true), extent(8192, false)];
    trim_to(&mut extents, 512, 5000);
    assert_eq!(extents, [extent(3584, true), extent(1416, false)]);
}
