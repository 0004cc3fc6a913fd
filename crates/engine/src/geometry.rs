//! Where things lie on the drives: sizes that are fixed for a pool's life, and the arithmetic over them.

use format::limits::{BLOCK_BYTES, DRIVE_ZONES_MIN, SUPERBLOCK_SLOT, ZONE_MAX, ZONE_MIN};
use format::{Column, Row, Scheme, Superblock, ZoneIndex};

/// Sizes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Scheme of new segments.
    pub(crate) scheme: Scheme,
    /// Columns that the segment table has room for.
    pub(crate) table_width: u8,
    /// Bytes of a zone.
    pub(crate) zone_bytes: u64,
    /// Byte of the first zone.
    pub(crate) data_start: u64,
}

/// Zones that the product wants on a drive at least, so that the cleaner has something to choose from.
const ZONES_WANTED: u64 = 2048;
/// Smallest zone that the product makes.
const PRODUCT_ZONE_MIN: u64 = 1 << 20;

impl Geometry {
    /// The geometry of an existing pool.
    pub(crate) fn of(superblock: &Superblock) -> Self {
        Self {
            scheme: superblock.scheme,
            table_width: superblock.table_width,
            zone_bytes: superblock.zone_bytes,
            data_start: superblock.data_start,
        }
    }

    /// Rows of a segment.
    pub(crate) fn rows(&self) -> u32 {
        u32::try_from(self.zone_bytes / BLOCK_BYTES).unwrap_or(u32::MAX)
    }

    /// Data blocks of a segment.
    pub(crate) fn segment_blocks(&self) -> u64 {
        u64::from(self.rows()) * u64::from(self.scheme.data())
    }

    /// Blocks of a segment that can live when it is packed as well as may be: each record has a header.
    pub(crate) fn segment_payload(&self) -> u64 {
        self.segment_blocks() - self.segment_blocks().div_ceil(self.meta_blocks() as u64 + 1)
    }

    /// Blocks up to which a write goes into one record, so that it is there whole after a crash or not at all: 64, less
    /// where segments are tiny.
    pub(crate) fn atomic_blocks(&self) -> u32 {
        (self.rows() * u32::from(self.scheme.data()) / 4).clamp(1, 64)
    }

    /// Nodes or table blocks that go into one request: it must fit any segment.
    pub(crate) fn meta_blocks(&self) -> usize {
        (self.rows() as usize * usize::from(self.scheme.data()) / 4).clamp(1, 128)
    }

    /// Zones of a drive of `size` bytes.
    pub(crate) fn zones(&self, size: u64) -> u32 {
        let zones = size.saturating_sub(self.data_start) / self.zone_bytes;
        u32::try_from(zones).unwrap_or(u32::MAX)
    }

    /// The zone that a byte of a drive lies in; `None` before the first.
    pub(crate) fn zone_at(&self, offset: u64) -> Option<ZoneIndex> {
        let zone = offset.checked_sub(self.data_start)? / self.zone_bytes;
        u32::try_from(zone).ok().map(ZoneIndex::new)
    }

    /// First byte of a zone.
    pub(crate) fn zone_offset(&self, zone: ZoneIndex) -> u64 {
        self.data_start + u64::from(zone.get()) * self.zone_bytes
    }
}

/// The zone size for a pool whose smallest drive has `size` bytes: 1..64 MiB.
pub(crate) fn zone_bytes_for(size: u64) -> u64 {
    let wanted = (size / ZONES_WANTED).max(1);
    let power = 1 << wanted.ilog2();
    u64::clamp(power, PRODUCT_ZONE_MIN, ZONE_MAX)
}

/// First zone's byte for zones of this size: after the superblocks, aligned to a zone.
pub(crate) fn data_start_for(zone_bytes: u64) -> u64 {
    (2 * SUPERBLOCK_SLOT).next_multiple_of(zone_bytes)
}

/// Smallest drive that a pool with zones of this size takes.
pub(crate) fn drive_bytes_min(zone_bytes: u64) -> u64 {
    assert!((ZONE_MIN..=ZONE_MAX).contains(&zone_bytes), "a zone of {zone_bytes} bytes");
    data_start_for(zone_bytes) + DRIVE_ZONES_MIN * zone_bytes
}

/// One of the two superblock slots of a drive. A superblock goes to the slot that does not hold the drive's last one,
/// so that a torn write leaves that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SuperblockSlot {
    #[default]
    First,
    Second,
}

impl SuperblockSlot {
    pub(crate) const BOTH: [Self; 2] = [Self::First, Self::Second];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// Its first byte on the drive.
    pub(crate) fn offset(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => SUPERBLOCK_SLOT,
        }
    }
}

/// Where payload and header blocks of one record lie: block `index` of them, column-major over the record's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordLayout {
    /// First row.
    pub(crate) row: Row,
    /// Rows.
    pub(crate) rows: u32,
}

impl RecordLayout {
    /// The layout of a record of `blocks` blocks, header included, that starts at `row`.
    pub(crate) fn new(scheme: Scheme, row: Row, blocks: u32) -> Self {
        Self { row, rows: scheme.rows_for(blocks) }
    }

    /// Column and row of block `index`.
    pub(crate) fn place(&self, index: u32) -> (Column, Row) {
        let column = u8::try_from(index / self.rows).unwrap_or(u8::MAX);
        (Column::new(column), self.row.plus(index % self.rows))
    }

    /// The row after the record.
    pub(crate) fn end(&self) -> Row {
        self.row.plus(self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_sizes_follow_the_drives() {
        for (size, zone) in
            [(64 << 20, 1 << 20), (2 << 30, 1 << 20), (32 << 30, 16 << 20), (3_200_000_000_000, 64 << 20)]
        {
            assert_eq!(zone_bytes_for(size), zone, "{size}");
        }
        assert_eq!(data_start_for(1 << 20), 4 << 20);
        assert_eq!(data_start_for(64 << 20), 64 << 20);
    }

    #[test]
    fn a_record_lies_column_by_column() {
        let layout = RecordLayout::new(Scheme::new(4, 1).unwrap(), Row::new(10), 10);
        assert_eq!(layout.rows, 3);
        let places: Vec<_> =
            (0..10).map(|index| layout.place(index)).map(|(c, r)| (c.get(), r.get())).collect();
        assert_eq!(places[..4], [(0, 10), (0, 11), (0, 12), (1, 10)]);
        assert_eq!(places[9], (3, 10));
        assert_eq!(layout.end(), Row::new(13));
    }
}
