//! How many segments a pool may have, so that the tables of its shards can describe all of them.
//!
//! Two limits of the format bind a shard. The root of a checkpoint leads to [`TABLE_BLOCKS_MAX`]
//! table blocks. And every checkpoint stores the segment table, the index blocks and the root in
//! segments that the superblock then lists as recent, of which there is room for
//! [`recent_segments_max`].
//!
//! Always true: a shard with up to [`shard_segments_max`] segments stays within both. Decides, does
//! nothing.

use crate::limits::{BLOCK_BYTES, TABLE_BLOCKS_MAX};
use crate::{INDEX_ENTRIES, LIVE_PER_BLOCK, Scheme, recent_segments_max, segments_per_block};

/// Table blocks that are kept for the layer table, one in this many: those of 2 million layers.
const LAYERS_PART: usize = 4;
/// Recent segments that hold what every checkpoint stores anew, one in this many. The others are
/// for records and map nodes.
const ANEW_PART: usize = 8;
/// Blocks of a segment that hold payload, one in this many at least. Table blocks go into records
/// of up to 128 payload blocks with one header block, whose last row is padded: at most 32 blocks
/// beside 128. A record that does not fit ends a segment: at most a third of it stays unused.
const PAYLOAD_PART: u64 = 2;

/// Segments that one shard may have, in a pool of `shards` shards whose segment tables are
/// `table_width` columns wide and whose segments have `segment_blocks` data blocks.
///
/// More of them than this break a limit of the format: their checkpoints cannot be stored.
pub const fn shard_segments_max(shards: usize, table_width: u8, segment_blocks: u64) -> u32 {
    let (mut fit, mut too_many) = (0, u32::MAX);
    // The tables only grow with the segments: the largest number is found by halving.
    while too_many - fit > 1 {
        let middle = fit + (too_many - fit) / 2;
        if fits(middle, shards, table_width, segment_blocks) {
            fit = middle;
        } else {
            too_many = middle;
        }
    }
    fit
}

/// True if the tables of a shard with so many segments stay within the limits.
const fn fits(segments: u32, shards: usize, table_width: u8, segment_blocks: u64) -> bool {
    let segments = segments as usize;
    let described = segments.div_ceil(segments_per_block(table_width));
    let tables = described + segments.div_ceil(LIVE_PER_BLOCK) + TABLE_BLOCKS_MAX / LAYERS_PART;
    // With the index blocks and the root.
    let anew = (described + tables.div_ceil(INDEX_ENTRIES) + 1) as u64;
    let room =
        (recent_segments_max(shards, table_width) / ANEW_PART) as u64 * (segment_blocks / PAYLOAD_PART);
    tables <= TABLE_BLOCKS_MAX && anew <= room
}

/// Zones that the drives of a pool may have together, so that its shards can describe the segments
/// of its scheme that they have room for, each its share of them. `zone_bytes` is the size of a
/// zone in bytes.
pub fn pool_zones_max(scheme: Scheme, shards: usize, table_width: u8, zone_bytes: u64) -> u64 {
    let segment_blocks = zone_bytes / BLOCK_BYTES * u64::from(scheme.data());
    let segments = u64::from(shard_segments_max(shards, table_width, segment_blocks));
    segments * shards as u64 * u64::from(scheme.width())
}

#[cfg(test)]
#[path = "capacity_tests.rs"]
mod tests;
