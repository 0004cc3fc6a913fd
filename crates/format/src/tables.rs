//! The tables and the root of a checkpoint.
//!
//! A shard's checkpoint is a root block that points to index blocks, which point to table blocks:
//! first the segment table, then the live counts, then the layer table. All of them are stored in
//! the log, and the pointer to each contains its CRC. Map nodes have the same layout as index
//! blocks.

use crate::checked::{code_of, narrow};
use crate::error::assert_storable;
use crate::limits::{
    BLOCK, COLUMNS_MAX, DRIVES_MAX, NODE_ENTRIES, RECENT_SEGMENTS_MAX, RECENT_SEGMENTS_MIN, ROWS_MAX,
    SHARDS_MAX, SUPERBLOCK_SLOT, TABLE_BLOCKS_MAX,
};
use crate::wire::{Reader, Writer};
use crate::{
    Column, DriveIndex, FORMAT_VERSION, FormatError, Incarnation, MapEntry, Row, Scheme, Sequence,
    ShardIndex, ZoneIndex,
};

/// Entries of an index block.
pub const INDEX_ENTRIES: usize = NODE_ENTRIES;
/// Live counts in a table block.
pub const LIVE_PER_BLOCK: usize = BLOCK / 4;

const _: () = assert!(NODE_ENTRIES * MapEntry::BYTES == BLOCK);

const SEGMENT_FIXED: usize = 16;
const COLUMN_BYTES: usize = 12;
/// Drive index of a column that is not on any drive: the segment has a hole there.
const NO_DRIVE: u16 = u16::MAX;

const _: () = assert!(NODE_ENTRIES == 256 && LIVE_PER_BLOCK == 1024);

/// The state of a segment: whether it still accepts records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// More records may follow the last one.
    Open,
    /// The segment ends at its last row.
    Sealed,
}

/// The purpose of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SegmentClass {
    /// New data, in the pool's scheme.
    Hot,
    /// Small commits, mirrored.
    Mirror,
    /// Data moved by the cleaner.
    Cold,
    /// Map nodes and tables, as stored by checkpoints.
    Map,
}

impl SegmentClass {
    const ALL: [(u8, Self); 4] = [(1, Self::Hot), (2, Self::Mirror), (3, Self::Cold), (4, Self::Map)];

    fn to_byte(self) -> u8 {
        code_of(&Self::ALL, self)
    }

    fn from_byte(byte: u8) -> Result<Self, FormatError> {
        let entry = Self::ALL.iter().find(|(value, _)| *value == byte);
        entry.map(|(_, class)| *class).ok_or(FormatError::Invalid("segment class"))
    }
}

/// One column of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentColumn {
    /// The zone of the column; `None` if no drive was available.
    pub zone: Option<(DriveIndex, ZoneIndex)>,
    /// Rows from this one on were never written because the drive was lost. `ROWS_MAX` for a
    /// complete column.
    pub missing_from: Row,
    /// Cells of the column are known to be wrong or unreadable: it must be written again elsewhere.
    pub damaged: bool,
}

impl SegmentColumn {
    /// Returns a complete column on `zone`.
    pub const fn whole(drive: DriveIndex, zone: ZoneIndex) -> Self {
        Self { zone: Some((drive, zone)), missing_from: Row::new(ROWS_MAX), damaged: false }
    }

    /// Returns a column that is not on any drive.
    pub const fn hole() -> Self {
        Self { zone: None, missing_from: Row::new(0), damaged: false }
    }

    /// Returns true if row `row` was written.
    pub const fn holds(&self, row: Row) -> bool {
        self.zone.is_some() && row.get() < self.missing_from.get()
    }
}

/// A segment, as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// The incarnation of the segment.
    pub incarnation: Incarnation,
    /// Scheme of the segment.
    pub scheme: Scheme,
    /// Purpose of the segment.
    pub class: SegmentClass,
    /// State of the segment.
    pub state: SegmentState,
    /// Number of rows, if the segment is sealed.
    pub rows: u32,
    /// Columns of the segment, data columns first.
    pub columns: Vec<SegmentColumn>,
}

impl SegmentRecord {
    /// Checks that the record is valid in a table of this width: encoding asserts this, decoding
    /// refuses invalid records.
    fn check(&self, table_width: u8) -> Result<(), FormatError> {
        if self.incarnation.get() == 0 {
            return Err(FormatError::Invalid("incarnation of a segment"));
        }
        let width = self.scheme.width();
        if width > table_width || self.columns.len() != usize::from(width) {
            return Err(FormatError::Invalid("columns of a segment"));
        }
        if self.rows > ROWS_MAX {
            return Err(FormatError::Invalid("segment size"));
        }
        for column in &self.columns {
            if column.missing_from.get() > ROWS_MAX {
                return Err(FormatError::Invalid("missing row"));
            }
            if column.zone.is_some_and(|(drive, _)| drive.index() >= DRIVES_MAX) {
                return Err(FormatError::Invalid("drive of a column"));
            }
        }
        Ok(())
    }

    /// Returns a column.
    pub fn column(&self, column: Column) -> Option<&SegmentColumn> {
        self.columns.get(column.index())
    }
}

/// Returns the number of segment records in a block of a table of this width.
pub const fn segments_per_block(table_width: u8) -> usize {
    BLOCK / (SEGMENT_FIXED + COLUMN_BYTES * table_width as usize)
}

/// Writes a record of a table of this width.
///
/// # Panics
/// If the record is invalid.
pub(crate) fn write_segment(out: &mut Writer<'_>, segment: &SegmentRecord, table_width: u8) {
    assert_storable(segment.check(table_width));
    put_segment(out, segment, table_width);
}

fn put_segment(out: &mut Writer<'_>, segment: &SegmentRecord, table_width: u8) {
    let width = segment.columns.len();
    out.u64(segment.incarnation.get());
    out.u8(segment.scheme.data());
    out.u8(segment.scheme.parity());
    let state = u8::from(segment.state == SegmentState::Sealed);
    out.u8(segment.class.to_byte() | state << 7);
    out.u8(0);
    out.u32(segment.rows);
    for column in &segment.columns {
        let (drive, zone) = column.zone.map_or((NO_DRIVE, 0), |(drive, zone)| (drive.get(), zone.get()));
        out.u16(drive);
        out.u8(u8::from(column.damaged));
        out.u8(0);
        out.u32(zone);
        out.u32(column.missing_from.get());
    }
    let end = out.len() + COLUMN_BYTES * usize::from(table_width).saturating_sub(width);
    out.pad_to(end);
}

fn read_column(input: &mut Reader<'_>) -> Result<SegmentColumn, FormatError> {
    let drive = input.u16()?;
    let damaged = match input.u8()? {
        0 => false,
        1 => true,
        _ => return Err(FormatError::Invalid("state of a column")),
    };
    input.u8()?;
    let (zone, missing_from) = (input.u32()?, Row::new(input.u32()?));
    let zone = (drive != NO_DRIVE).then_some((DriveIndex::new(drive), ZoneIndex::new(zone)));
    Ok(SegmentColumn { zone, missing_from, damaged })
}

/// Reads a segment record; returns `None` for an unused slot.
pub(crate) fn read_segment(
    input: &mut Reader<'_>,
    table_width: u8,
) -> Result<Option<SegmentRecord>, FormatError> {
    let incarnation = Incarnation::new(input.u64()?);
    let (data, parity, class, _) = (input.u8()?, input.u8()?, input.u8()?, input.u8()?);
    let rows = input.u32()?;
    let mut columns = Vec::with_capacity(usize::from(table_width));
    for _ in 0..table_width {
        columns.push(read_column(input)?);
    }
    if incarnation.get() == 0 {
        return Ok(None);
    }
    let scheme = Scheme::new(data, parity).map_err(|_| FormatError::Invalid("segment scheme"))?;
    columns.truncate(usize::from(scheme.width()));
    let state = if class & 0x80 == 0 { SegmentState::Open } else { SegmentState::Sealed };
    let class = SegmentClass::from_byte(class & 0x7F)?;
    let segment = SegmentRecord { incarnation, scheme, class, state, rows, columns };
    segment.check(table_width)?;
    Ok(Some(segment))
}

/// Returns the number of segments that one shard of `shards` may list in the superblock as opened
/// since its last checkpoint, in a pool with segments of up to `table_width` columns. The lists
/// may use three quarters of a superblock slot.
pub const fn recent_segments_max(shards: usize, table_width: u8) -> usize {
    // The segment's number and the row at which recovery starts.
    let entry = 8 + SEGMENT_FIXED + COLUMN_BYTES * table_width as usize;
    #[allow(clippy::cast_possible_truncation, reason = "two MiB")]
    let room = SUPERBLOCK_SLOT as usize / 4 * 3 / entry / if shards == 0 { 1 } else { shards };
    if room < RECENT_SEGMENTS_MAX { room } else { RECENT_SEGMENTS_MAX }
}

const _: () = assert!(recent_segments_max(SHARDS_MAX, COLUMNS_MAX as u8) >= RECENT_SEGMENTS_MIN);

/// Encodes a table block of up to [`segments_per_block`] segments; `None` marks an unused slot.
///
/// # Panics
/// If there are more segments, or one is invalid.
pub fn encode_segments(segments: &[Option<SegmentRecord>], table_width: u8) -> Vec<u8> {
    assert!(segments.len() <= segments_per_block(table_width), "too many segments for a table block");
    let mut bytes = Vec::with_capacity(BLOCK);
    let mut out = Writer::new(&mut bytes);
    for segment in segments {
        match segment {
            Some(segment) => write_segment(&mut out, segment, table_width),
            None => {
                let next = out.len() + SEGMENT_FIXED + COLUMN_BYTES * usize::from(table_width);
                out.pad_to(next);
            }
        }
    }
    out.pad_to(BLOCK);
    bytes
}

/// Decodes the slots of a table block of segments.
///
/// # Errors
/// If a record has a value that no writer stores.
pub fn decode_segments(block: &[u8], table_width: u8) -> Result<Vec<Option<SegmentRecord>>, FormatError> {
    let mut input = Reader::for_block(block)?;
    (0..segments_per_block(table_width)).map(|_| read_segment(&mut input, table_width)).collect()
}

/// Encodes a table block of up to [`LIVE_PER_BLOCK`] live counts, in segment order.
pub fn encode_live(counts: &[u32]) -> Vec<u8> {
    assert!(counts.len() <= LIVE_PER_BLOCK, "too many live counts for a table block");
    let mut bytes = Vec::with_capacity(BLOCK);
    let mut out = Writer::new(&mut bytes);
    counts.iter().for_each(|count| out.u32(*count));
    out.pad_to(BLOCK);
    bytes
}

/// Decodes the live counts of a table block.
///
/// # Errors
/// If `block` is not one block long.
pub fn decode_live(block: &[u8]) -> Result<Vec<u32>, FormatError> {
    let mut input = Reader::for_block(block)?;
    (0..LIVE_PER_BLOCK).map(|_| input.u32()).collect()
}

pub(crate) fn write_entry(out: &mut Writer<'_>, entry: MapEntry) {
    out.raw(&entry.to_bytes());
}

pub(crate) fn read_entry(input: &mut Reader<'_>) -> Result<MapEntry, FormatError> {
    MapEntry::from_bytes(input.array()?).ok_or(FormatError::Invalid("map entry"))
}

/// Encodes a map node or index block into `block`, which is 4096 bytes long.
pub fn encode_entries(entries: &[MapEntry; NODE_ENTRIES], block: &mut [u8]) {
    assert_eq!(block.len(), BLOCK, "size of a node");
    for (entry, place) in entries.iter().zip(block.chunks_exact_mut(MapEntry::BYTES)) {
        place.copy_from_slice(&entry.to_bytes());
    }
}

/// Decodes a map node or index block.
///
/// # Errors
/// If an entry has a value that no writer stores.
pub fn decode_entries(block: &[u8]) -> Result<Box<[MapEntry; NODE_ENTRIES]>, FormatError> {
    let mut input = Reader::for_block(block)?;
    let mut entries = Box::new([MapEntry::ABSENT; NODE_ENTRIES]);
    for entry in entries.iter_mut() {
        *entry = read_entry(&mut input)?;
    }
    Ok(entries)
}

/// The number of blocks of each table of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCounts {
    /// Blocks of the segment table.
    pub segments: u32,
    /// Blocks of the live counts.
    pub live: u32,
    /// Blocks of the layer table.
    pub layers: u32,
}

impl TableCounts {
    /// Returns the number of all table blocks.
    pub const fn total(&self) -> usize {
        self.segments as usize + self.live as usize + self.layers as usize
    }

    /// Checks that a root can address the table blocks, and that this needs `indexes` index blocks.
    fn check(&self, indexes: usize) -> Result<(), FormatError> {
        if self.total() > TABLE_BLOCKS_MAX || indexes != self.total().div_ceil(INDEX_ENTRIES) {
            return Err(FormatError::Invalid("table sizes"));
        }
        Ok(())
    }
}

/// The root of a shard's checkpoint: one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRoot {
    /// The shard.
    pub shard: ShardIndex,
    /// The last record that is included in the checkpoint.
    pub sequence: Sequence,
    /// Slots of the segment table in use, counted from segment 1.
    pub segment_slots: u32,
    /// Sizes of the tables.
    pub tables: TableCounts,
    /// The index blocks, in order.
    pub indexes: Vec<MapEntry>,
}

impl CheckpointRoot {
    const MAGIC: u32 = u32::from_le_bytes(*b"GCKP");
    const FIXED: usize = 64;

    /// Checks that the root is valid: encoding asserts this, decoding refuses invalid roots.
    fn check(&self) -> Result<(), FormatError> {
        if self.shard.index() >= SHARDS_MAX {
            return Err(FormatError::Invalid("shard"));
        }
        self.tables.check(self.indexes.len())?;
        if self.indexes.iter().any(|entry| entry.address().is_none()) {
            return Err(FormatError::Invalid("pointer to an index block"));
        }
        Ok(())
    }

    /// Encodes the root as a block.
    ///
    /// # Panics
    /// If the root is invalid: there are more table blocks than a root can address, or the number
    /// of pointers is not that of the index blocks.
    pub fn encode(&self) -> Vec<u8> {
        assert_storable(self.check());
        self.write()
    }

    fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK);
        let mut out = Writer::new(&mut bytes);
        out.u32(Self::MAGIC);
        out.u32(FORMAT_VERSION);
        out.u16(self.shard.get());
        out.u16(narrow(self.indexes.len(), "table indexes"));
        out.u32(self.segment_slots);
        out.u64(self.sequence.get());
        out.u32(self.tables.segments);
        out.u32(self.tables.live);
        out.u32(self.tables.layers);
        out.pad_to(Self::FIXED);
        self.indexes.iter().for_each(|entry| write_entry(&mut out, *entry));
        out.pad_to(BLOCK);
        bytes
    }

    /// Decodes the root in a block with a verified CRC.
    ///
    /// # Errors
    /// If a field has a value that no writer stores.
    pub fn decode(block: &[u8]) -> Result<Self, FormatError> {
        let mut input = Reader::for_block_with_magic(block, Self::MAGIC)?;
        let shard = ShardIndex::new(input.u16()?);
        let indexes = usize::from(input.u16()?);
        let segment_slots = input.u32()?;
        let sequence = Sequence::new(input.u64()?);
        let tables = TableCounts { segments: input.u32()?, live: input.u32()?, layers: input.u32()? };
        tables.check(indexes)?;
        let mut input = Reader::new(block);
        input.raw(Self::FIXED)?;
        let indexes = (0..indexes).map(|_| read_entry(&mut input)).collect::<Result<Vec<_>, _>>()?;
        let root = Self { shard, sequence, segment_slots, tables, indexes };
        root.check()?;
        Ok(root)
    }
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
