//! Surveys against a plain list of the blocks that hold data, with the number of times that shards are asked.

use super::*;
use crate::volume::tests::every_way;

/// What shards answer that hold these blocks, in leaves of 256.
fn look(slices: Slices, data: &[u64], first: u64, end: u64) -> (Vec<Extent>, usize) {
    let mut survey = Survey::new(slices, first, end);
    let (mut extents, mut asked) = (Vec::new(), 0);
    while let Some(step) = survey.step() {
        match step {
            Step::Hole(blocks) => append(&mut extents, blocks, false),
            Step::Ask(piece) => {
                asked += 1;
                let local: Vec<u64> = data
                    .iter()
                    .map(|block| slices.place(*block))
                    .filter(|(shard, _)| *shard == piece.shard)
                    .map(|(_, block)| block)
                    .collect();
                for block in piece.block..piece.block + piece.blocks {
                    append(&mut extents, 1, local.contains(&block));
                }
                let behind = piece.block + piece.blocks;
                let leaves = local.iter().filter(|block| **block / 256 >= behind / 256);
                let next = leaves.map(|block| (block / 256 * 256).max(behind)).min();
                survey.told(piece, next.filter(|next| *next < slices.local_bound(piece.shard, end)));
            }
        }
    }
    (extents, asked)
}

#[test]
fn holes_are_skipped_however_long_they_are() {
    for slices in (1..9).flat_map(every_way) {
        let shards = slices.shards();
        let end = 1 << 38;
        let (extents, asked) = look(slices, &[], 77, end);
        assert_eq!(extents, [Extent { length: (end - 77) * 4096, data: false }]);
        assert!(asked <= shards, "{asked} times, {shards} shards");
        let data = [77, 1 << 20, (1 << 20) + 1, (1 << 37) - 1, end - 1];
        let (extents, asked) = look(slices, &data, 77, end);
        let held: u64 = extents.iter().filter(|extent| extent.data).map(|extent| extent.length).sum();
        assert_eq!((held, extents.iter().filter(|extent| extent.data).count()), (5 * 4096, 4));
        assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), (end - 77) * 4096);
        assert!(asked <= 2 * shards + 2 * data.len(), "{asked} times, {shards} shards");
    }
}

#[test]
fn what_is_found_is_what_is_there() {
    for slices in (1..6).flat_map(every_way) {
        let mut state = slices.shards() as u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..20 {
            let (first, length) = (random(5000), 1 + random(30_000));
            let data: Vec<u64> = (0..random(40)).map(|_| random(40_000)).collect();
            let mut expected = Vec::new();
            (first..first + length).for_each(|block| append(&mut expected, 1, data.contains(&block)));
            assert_eq!(look(slices, &data, first, first + length).0, expected, "{data:?} {first} {length}");
        }
    }
}
