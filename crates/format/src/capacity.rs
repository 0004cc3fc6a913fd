//! The maximum number of segments of a pool, such that the tables of its shards can describe all of
//! them.
//!
//! Two limits of the format apply to a shard. The root of a checkpoint addresses up to
//! [`TABLE_BLOCKS_MAX`] table blocks. Every checkpoint rewrites the segment table, the index blocks
//! and the root into segments that the superblock then lists as recent, and that list has room for
//! [`recent_segments_max`] entries.
//!
//! Always true: a shard with up to [`shard_segments_max`] segments stays within both limits. Pure
//! functions.

use crate::limits::{BLOCK_BYTES, TABLE_BLOCKS_MAX};
use crate::{INDEX_ENTRIES, LIVE_PER_BLOCK, Scheme, recent_segments_max, segments_per_block};

/// The layer table may use one in this many table blocks: enough for 2 million layers.
const LAYER_TABLE_DIVISOR: usize = 4;
/// The blocks that every checkpoint rewrites may use one in this many recent segments. The other
/// segments are for records and map nodes.
const REWRITTEN_DIVISOR: usize = 8;
/// At least one in this many blocks of a segment holds payload. Table blocks go into records of up
/// to 128 payload blocks with one header block and a padded last row: at most 32 blocks more than
/// the 128. A record that does not fit ends a segment; at most a third of the segment stays unused.
const PAYLOAD_DIVISOR: u64 = 2;

/// Returns the maximum number of segments of one shard, in a pool of `shards` shards with
/// segment tables of `table_width` columns and segments of `segment_blocks` data blocks.
///
/// A checkpoint of more segments would exceed a limit of the format and could not be stored.
pub const fn shard_segments_max(shards: usize, table_width: u8, segment_blocks: u64) -> u32 {
    let (mut fit, mut too_many) = (0, u32::MAX);
    // The size of the tables increases with the number of segments, so bisection finds the maximum.
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

/// Returns true if the tables of a shard with this many segments stay within the limits.
const fn fits(segments: u32, shards: usize, table_width: u8, segment_blocks: u64) -> bool {
    let segments = segments as usize;
    let segment_blocks_needed = segments.div_ceil(segments_per_block(table_width));
    let tables =
        segment_blocks_needed + segments.div_ceil(LIVE_PER_BLOCK) + TABLE_BLOCKS_MAX / LAYER_TABLE_DIVISOR;
    // The segment table, the index blocks and the root.
    let rewritten = (segment_blocks_needed + tables.div_ceil(INDEX_ENTRIES) + 1) as u64;
    let room = (recent_segments_max(shards, table_width) / REWRITTEN_DIVISOR) as u64
        * (segment_blocks / PAYLOAD_DIVISOR);
    tables <= TABLE_BLOCKS_MAX && rewritten <= room
}

/// Returns the maximum number of zones on all drives of a pool together, such that its shards can
/// describe every segment of `scheme` that fits on them, each shard an equal share. `zone_bytes` is
/// the size of a zone in bytes.
pub fn pool_zones_max(scheme: Scheme, shards: usize, table_width: u8, zone_bytes: u64) -> u64 {
    let segment_blocks = zone_bytes / BLOCK_BYTES * u64::from(scheme.data());
    let segments = u64::from(shard_segments_max(shards, table_width, segment_blocks));
    segments * shards as u64 * u64::from(scheme.width())
}

#[cfg(test)]
#[path = "capacity_tests.rs"]
mod tests;
