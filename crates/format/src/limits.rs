//! Every limit of the format, with its unit. No structure on a drive is unbounded.

/// Bytes of a block, the unit of the map, of checksums and of atomicity.
pub const BLOCK: usize = 4096;
/// [`BLOCK`] as a 64-bit number, for offsets.
pub const BLOCK_BYTES: u64 = BLOCK as u64;
/// Columns of a segment, data and parity together.
pub const COLUMNS_MAX: usize = 32;
/// Bytes of the smallest zone: 16 rows. Production pools use 1 MiB or more; the simulator uses
/// small zones so that the log wraps around often.
pub const ZONE_MIN: u64 = 64 << 10;
/// Data blocks of the smallest segment. In smaller segments, headers and checkpoints take up so
/// much space that cleaning gains too little.
pub const SEGMENT_BLOCKS_MIN: u64 = 32;
/// Bytes of the largest zone.
pub const ZONE_MAX: u64 = 64 << 20;
/// Rows of the largest zone.
pub const ROWS_MAX: u32 = (ZONE_MAX / BLOCK_BYTES) as u32;
/// Drives of a pool.
pub const DRIVES_MAX: usize = 256;
/// Shards of a pool.
pub const SHARDS_MAX: usize = 64;
/// Bytes reserved on a drive for one of its two superblock slots.
pub const SUPERBLOCK_SLOT: u64 = 2 << 20;
/// Segments that a shard may open between two checkpoints; it writes a checkpoint before it exceeds
/// this. If the shard's share of the superblock has room for fewer segments,
/// [`crate::recent_segments_max`] is the limit.
pub const RECENT_SEGMENTS_MAX: usize = 192;
/// The smallest value of [`crate::recent_segments_max`]: for the widest pool with the most shards.
pub const RECENT_SEGMENTS_MIN: usize = 56;
/// Zones that a drive must have, not counting its superblocks.
pub const DRIVE_ZONES_MIN: u64 = 8;
/// Payload blocks of a record.
pub const RECORD_PAYLOAD_MAX: usize = 1024;
/// Header blocks of a record.
pub const HEADER_BLOCKS_MAX: usize = 8;
/// Items of a record.
pub const RECORD_ITEMS_MAX: usize = 1024;
/// Bytes of the name of a pool or volume.
pub const NAME_MAX: usize = 63;
/// Bytes of the path by which a drive was last opened.
pub const DRIVE_PATH_MAX: usize = 255;
/// Openings of a pool that a superblock lists, newest last.
pub const LINEAGE_MAX: usize = 8;
/// Bytes of a volume: 1 PiB.
pub const VOLUME_MAX: u64 = 1 << 50;
/// Blocks of one layer within one shard: a map of five levels could address 2^40, volumes need
/// 2^38.
pub const LAYER_BLOCKS_MAX: u64 = 1 << 38;
/// Entries of a map node, of 16 bytes each. An index block has the same layout.
pub const NODE_ENTRIES: usize = BLOCK / 16;
/// Levels of the map of the largest layer; a node has [`NODE_ENTRIES`] entries.
pub const HEIGHT_MAX: u8 = 5;
/// Volumes, snapshots and clones of a pool, together.
pub const VOLUMES_MAX: u32 = 65_536;
/// Blocks of the event log.
pub const EVENT_BLOCKS: u64 = 64;
/// Bytes of the text of an event.
pub const EVENT_TEXT_MAX: usize = 255;
/// Table blocks of one shard's checkpoint: as many as the root's index pointers can address.
pub const TABLE_BLOCKS_MAX: usize = ROOT_POINTERS_MAX * NODE_ENTRIES;
/// Index pointers of a checkpoint root.
pub const ROOT_POINTERS_MAX: usize = 248;
/// Stripe unit of a volume in bytes: the address space is distributed over the shards in slices of
/// this size.
pub const SLICE: u64 = 4 << 20;
