//! Encoding, verification and display of every on-disk record of a pool. No I/O.
//!
//! Owns the byte layouts: superblocks, record headers, map nodes, checkpoint tables, volume
//! records, events, and the limits that they set. The engine, the offline verifier and the fuzzers
//! read and write drives through this crate alone.
//!
//! Always true: all integers are little-endian and of fixed width; no bytes are decoded before
//! their checksum or MAC has been verified; no bytes, however damaged, make a decoder panic;
//! docs/format.md describes the same layouts, and a test compares the two.
//!
//! Must not know: how or when bytes reach a drive.

mod address;
mod capacity;
mod checked;
mod drive;
mod error;
mod event;
#[cfg(test)]
mod fuzz;
mod ids;
mod item;
mod layers;
pub mod limits;
mod lost;
mod mac;
mod record;
mod scheme;
mod scrub;
mod stamp;
mod superblock;
mod tables;
#[cfg(test)]
mod testing;
mod volume;
mod wire;

pub use address::{Address, MapEntry, Mapping};
pub use capacity::{pool_zones_max, shard_segments_max};
pub use drive::{DriveErrors, DriveRecord, DriveState};
pub use error::FormatError;
pub use event::{Event, EventBlock, EventKind};
pub use ids::{
    Column, DriveId, DriveIndex, Generation, Incarnation, LayerBlock, LayerId, PoolId, Row, SegmentId,
    Sequence, ShardIndex, VolumeId, ZoneIndex,
};
pub use item::{Item, UnmapMode};
pub use layers::{LAYERS_PER_BLOCK, LayerEntry, LayerRecord, MergedRecord, decode_layers, encode_layers};
pub use limits::NODE_ENTRIES;
pub use lost::{LOST_PER_BLOCK, LostBlock, LostList, decode_lost, encode_lost};
pub use mac::PoolKey;
pub use record::{AuthenticatedHeader, Header, RecordLocation, UnverifiedHeader, header_blocks_for};
pub use scheme::{Scheme, SchemeError};
pub use scrub::{ScrubRecord, ScrubTally};
pub use stamp::{PoolOpening, StateStamp};
pub use superblock::{ShardRecord, Superblock, UnverifiedSuperblock};
pub use tables::{
    CheckpointRoot, INDEX_ENTRIES, LIVE_PER_BLOCK, SegmentClass, SegmentColumn, SegmentRecord, SegmentState,
    TableCounts, decode_entries, decode_live, decode_segments, encode_entries, encode_live, encode_segments,
    recent_segments_max, segments_per_block,
};
pub use volume::{QosLimits, VolumeKind, VolumeRecord, VolumeSpread, VolumeState};

/// The version of the whole on-disk format. Any change to a layout raises it; pools of an older or
/// newer version are refused.
pub const FORMAT_VERSION: u32 = 2;
