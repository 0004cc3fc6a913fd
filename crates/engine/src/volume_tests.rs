//! Arithmetic over a volume's address space: slices, sub-requests and extents.

use format::VolumeSpread;

use super::extents::trim_to;
use super::*;
use crate::slices::Slices;

/// Every layout of a volume in a pool of `shards` shards.
pub(super) fn all_layouts(shards: usize) -> impl Iterator<Item = Slices> {
    let spreads = (0..shards).flat_map(move |first| (1..=shards).map(move |of| (first, of)));
    let narrow = spreads.map(move |(first, of)| {
        let (first, of) = (u16::try_from(first).unwrap(), u16::try_from(of).unwrap());
        Slices::of(VolumeSpread { first, shards: of }, shards)
    });
    std::iter::once(Slices::new(shards)).chain(narrow)
}

#[test]
fn every_block_has_one_location() {
    for slices in (1..5).flat_map(all_layouts) {
        let mut next = vec![0; slices.shards()];
        for block in 0..10 * Slices::BLOCKS {
            let (shard, local) = slices.locate(block);
            assert_eq!(local, next[shard], "blocks of a shard come in order, without gaps");
            assert_eq!(slices.volume_block(shard, local), Some(block));
            next[shard] += 1;
        }
        let holders: Vec<usize> = slices.holders().collect();
        assert_eq!(holders[0], slices.locate(0).0);
        let spread = slices.spread();
        assert_eq!((usize::from(spread.first), usize::from(spread.shards)), (holders[0], holders.len()));
        for (shard, blocks) in next.into_iter().enumerate() {
            assert_eq!(holders.contains(&shard), blocks > 0, "shard {shard} of {slices:?}");
        }
    }
}

#[test]
fn local_bounds_count_the_blocks_before() {
    for slices in (1..4).flat_map(all_layouts) {
        let mut before = vec![0; slices.shards()];
        for block in 0..7 * Slices::BLOCKS {
            for (shard, before) in before.iter().enumerate() {
                assert_eq!(slices.local_bound(shard, block), *before, "{slices:?}: {shard}, block {block}");
            }
            before[slices.locate(block).0] += 1;
        }
    }
}

#[test]
fn runs_of_a_shard_are_runs_of_the_volume() {
    for slices in (1..4).flat_map(all_layouts) {
        let (shard, local) = slices.locate(Slices::BLOCKS / 2);
        let runs = slices.volume_runs(shard, local, 2 * Slices::BLOCKS);
        let blocks = runs.iter().flat_map(|(block, count)| *block..block + count);
        let expected = (0..).filter(|block| slices.locate(*block).0 == shard);
        let expected = expected.skip_while(|block| *block < Slices::BLOCKS / 2);
        assert!(blocks.eq(expected.take(2 * Slices::BLOCKS as usize)), "{slices:?}");
        let outside = (0..slices.shards()).find(|shard| slices.holders().all(|holder| holder != *shard));
        assert!(outside.is_none_or(|shard| slices.volume_runs(shard, 0, 5).is_empty()));
    }
}

#[test]
fn extents_are_trimmed_to_the_range() {
    let extent = |length, data| Extent { length, data };
    let mut extents = vec![extent(4096, true), extent(8192, false)];
    trim_to(&mut extents, 512, 5000);
    assert_eq!(extents, [extent(3584, true), extent(1416, false)]);
}
