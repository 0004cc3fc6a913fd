//! Every limit of the format, with its unit. Nothing on a drive is unbounded.

/// Bytes of a block: the unit of the map, of checksums and of atomicity.
pub const BLOCK: usize = 4096;
/// The same as a 64-bit number, for offsets.
pub const BLOCK_BYTES: u64 = BLOCK as u64;
/// Columns of a segment, data and parity together.
pub const COLUMNS_MAX: usize = 32;
/// Smallest zone in bytes: 16 rows. Products use 1 MiB and more; the simulator uses small ones to wrap around often.
pub const ZONE_MIN: u64 = 64 << 10;
/// Fewest data blocks of a segment: of smaller ones, headers and checkpoints leave too little for the cleaner to gain.
pub const SEGMENT_BLOCKS_MIN: u64 = 32;
/// Largest zone in bytes.
pub const ZONE_MAX: u64 = 64 << 20;
/// Rows of the largest zone.
pub const ROWS_MAX: u32 = (ZONE_MAX / BLOCK_BYTES) as u32;
/// Drives of a pool.
pub const DRIVES_MAX: usize = 256;
/// Shards of a pool.
pub const SHARDS_MAX: usize = 64;
/// Bytes reserved for one superblock slot on a drive; there are two.
pub const SUPERBLOCK_SLOT: u64 = 2 << 20;
/// Segments that a shard may have opened since its last checkpoint, as far as its share of the superblock has room for
/// them ([`crate::recent_segments_max`]); it checkpoints before it would pass this.
pub const RECENT_SEGMENTS_MAX: usize = 192;
/// The same for the widest pool with the most shards.
pub const RECENT_SEGMENTS_MIN: usize = 56;
/// Zones that a drive must offer beyond its superblocks.
pub const DRIVE_ZONES_MIN: u64 = 8;
/// Payload blocks of a record.
pub const RECORD_PAYLOAD_MAX: usize = 1024;
/// Header blocks of a record.
pub const HEADER_BLOCKS_MAX: usize = 8;
/// Items of a record.
pub const RECORD_ITEMS_MAX: usize = 1024;
/// Bytes of a pool's or volume's name.
pub const NAME_MAX: usize = 63;
/// Bytes of the path by which a drive was last known.
pub const DRIVE_PATH_MAX: usize = 255;
/// Openings of a pool that a superblock remembers, newest last.
pub const LINEAGE_MAX: usize = 8;
/// Size of a volume in bytes: 1 PiB.
pub const VOLUME_MAX: u64 = 1 << 50;
/// Blocks of one layer within one shard: five levels of the map could hold 2^40, volumes need 2^38.
pub const LAYER_BLOCKS_MAX: u64 = 1 << 38;
/// Levels of the map of the largest layer, a node having 256 entries.
pub const HEIGHT_MAX: u8 = 5;
/// Volumes, snapshots and clones of a pool.
pub const VOLUMES_MAX: u32 = 65_536;
/// Blocks of the event log.
pub const EVENT_BLOCKS: u64 = 64;
/// Bytes of an event's text.
pub const EVENT_TEXT_MAX: usize = 255;
/// Table blocks of one shard's checkpoint: what a root's index pointers can reach.
pub const TABLE_BLOCKS_MAX: usize = ROOT_POINTERS_MAX * crate::INDEX_ENTRIES;
/// Index pointers of a checkpoint root.
pub const ROOT_POINTERS_MAX: usize = 248;
/// Unit in which a volume's address space is dealt out to the shards, in bytes.
pub const SLICE: u64 = 4 << 20;
