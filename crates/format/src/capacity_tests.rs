//! The maximum number of segments: a checkpoint of that many segments can be stored, one more
//! breaks a limit.

use super::*;
use crate::limits::{
    BLOCK, COLUMNS_MAX, RECENT_SEGMENTS_MAX, ROOT_POINTERS_MAX, ROWS_MAX, SEGMENT_BLOCKS_MIN, SHARDS_MAX,
};
use crate::{
    Address, CheckpointRoot, Column, LAYERS_PER_BLOCK, MapEntry, Row, SegmentId, Sequence, ShardIndex,
    TableCounts,
};

/// Table blocks of a shard with this many segments and layers, divided up like a checkpoint does.
fn tables(segments: u32, layers: usize, table_width: u8) -> TableCounts {
    let blocks = |records: usize, per_block: usize| records.div_ceil(per_block) as u32;
    TableCounts {
        segments: blocks(segments as usize, segments_per_block(table_width)),
        live: blocks(segments as usize, LIVE_PER_BLOCK),
        layers: blocks(layers, LAYERS_PER_BLOCK),
    }
}

fn root(tables: TableCounts) -> CheckpointRoot {
    let entry = MapEntry::block(Address::new(SegmentId::new(1), Column::new(0), Row::new(0)), 0);
    let indexes = vec![entry; tables.total().div_ceil(INDEX_ENTRIES)];
    CheckpointRoot {
        shard: ShardIndex::new(0),
        sequence: Sequence::new(1),
        segment_slots: 0,
        tables,
        indexes,
    }
}

/// Number of segments that `blocks` rewritten blocks take up in the worst case: records of 128
/// payload blocks with a header, padded to whole rows, and unused space at the end of each segment.
fn segments_for(blocks: usize, segment_blocks: u64, columns: u64) -> u64 {
    let payload = (segment_blocks / 4).clamp(1, 128);
    let record = (payload + 1).next_multiple_of(columns);
    (blocks as u64).div_ceil(payload * (segment_blocks / record))
}

#[test]
fn a_checkpoint_of_the_maximum_number_of_segments_can_be_stored() {
    let layers = TABLE_BLOCKS_MAX / LAYER_TABLE_DIVISOR * LAYERS_PER_BLOCK;
    for width in 2..=COLUMNS_MAX as u8 {
        for shards in [1, 2, 16, SHARDS_MAX] {
            let columns = u64::from(width - 1);
            for rows in [16, 256, u64::from(ROWS_MAX)] {
                let segment_blocks = rows * columns;
                if segment_blocks < SEGMENT_BLOCKS_MIN {
                    continue;
                }
                let at = format!("{shards} shards, width {width}, {rows} rows");
                let most = shard_segments_max(shards, width, segment_blocks);
                assert!(fits(most, shards, width, segment_blocks), "{at}");
                assert!(!fits(most + 1, shards, width, segment_blocks), "{at}");

                let tables = tables(most, layers, width);
                assert!(tables.total() <= TABLE_BLOCKS_MAX, "{at}");
                let root = root(tables);
                assert!(root.indexes.len() <= ROOT_POINTERS_MAX && root.encode().len() == BLOCK, "{at}");
                let rewritten = tables.segments as usize + root.indexes.len() + 1;
                let taken = segments_for(rewritten, segment_blocks, columns);
                let room = (recent_segments_max(shards, width) / REWRITTEN_DIVISOR) as u64;
                assert!(taken <= room, "{at}: {taken} of {room}");
            }
        }
    }
}

#[test]
fn expected_values_of_the_limits() {
    let largest = u64::from(ROWS_MAX);
    // The checkpoint root is the limit for large segments: 40 bytes per segment of two columns, 400
    // bytes per segment of 32 columns.
    assert_eq!(shard_segments_max(1, 2, largest), 4_416_804);
    assert_eq!(shard_segments_max(1, 5, 4 * largest), 2_399_416);
    assert_eq!(shard_segments_max(1, 32, 31 * largest), 471_550);
    assert_eq!(RECENT_SEGMENTS_MAX / REWRITTEN_DIVISOR, 24);
    // The recent segments are the limit for small segments: 24 of 128 payload blocks, minus 76
    // blocks for indexes and root.
    assert_eq!(shard_segments_max(1, 2, 256), (24 * 128 - 76) * 102);
    // The limit in zones: 32 rows of 4 data columns, two shards, segments of five columns.
    let small = shard_segments_max(2, 5, 32 * 4);
    assert_eq!(small, (24 * 64 - 70) * 53);
    assert_eq!(pool_zones_max(Scheme::new(4, 1).unwrap(), 2, 5, 128 << 10), 2 * 5 * u64::from(small));
    // The limit of a pool is that of one shard, times the shards, times the columns of a segment.
    assert_eq!(
        pool_zones_max(Scheme::new(4, 1).unwrap(), 3, 5, 64 << 20),
        3 * 5 * u64::from(shard_segments_max(3, 5, 4 * largest))
    );
    // 24 drives of 30 TB in 8+2 on four shards are within the limit.
    let zones = 24 * (30_000_000_000_000u64 / (64 << 20));
    assert!(pool_zones_max(Scheme::new(8, 2).unwrap(), 4, 10, 64 << 20) > zones);
}
