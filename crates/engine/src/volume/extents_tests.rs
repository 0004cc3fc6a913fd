//! Extent scans compared with a list of data blocks, and their number of shard queries.

use super::*;
use crate::volume::tests::all_layouts;

/// Scans a range with shards that hold these blocks, in map leaves of 256. Returns the extents and
/// the number of queries.
fn scan(slices: Slices, data: &[u64], first: u64, end: u64) -> (Vec<Extent>, usize) {
    let mut scan = ExtentScan::new(slices, first, end);
    let (mut extents, mut queries) = (Vec::new(), 0);
    while let Some(step) = scan.step() {
        match step {
            ScanStep::Hole(blocks) => append(&mut extents, blocks, false),
            ScanStep::Query(part) => {
                queries += 1;
                let local: Vec<u64> = data
                    .iter()
                    .map(|block| slices.locate(*block))
                    .filter(|(shard, _)| *shard == part.shard)
                    .map(|(_, block)| block)
                    .collect();
                for block in part.block..part.block + part.blocks {
                    append(&mut extents, 1, local.contains(&block));
                }
                let after = part.block + part.blocks;
                let leaves = local.iter().filter(|block| **block / 256 >= after / 256);
                let next = leaves.map(|block| (block / 256 * 256).max(after)).min();
                scan.on_reply(part, next.filter(|next| *next < slices.local_bound(part.shard, end)));
            }
        }
    }
    (extents, queries)
}

#[test]
fn long_holes_take_few_queries() {
    for slices in (1..9).flat_map(all_layouts) {
        let shards = slices.shards();
        let end = 1 << 38;
        let (extents, queries) = scan(slices, &[], 77, end);
        assert_eq!(extents, [Extent { length: (end - 77) * 4096, data: false }]);
        assert!(queries <= shards, "{queries} queries, {shards} shards");
        let data = [77, 1 << 20, (1 << 20) + 1, (1 << 37) - 1, end - 1];
        let (extents, queries) = scan(slices, &data, 77, end);
        let data_bytes: u64 = extents.iter().filter(|extent| extent.data).map(|extent| extent.length).sum();
        assert_eq!((data_bytes, extents.iter().filter(|extent| extent.data).count()), (5 * 4096, 4));
        assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), (end - 77) * 4096);
        assert!(queries <= 2 * shards + 2 * data.len(), "{queries} queries, {shards} shards");
    }
}

#[test]
fn scans_match_the_data() {
    for slices in (1..6).flat_map(all_layouts) {
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
            assert_eq!(scan(slices, &data, first, first + length).0, expected, "{data:?} {first} {length}");
        }
    }
}
