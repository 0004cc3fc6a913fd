//! On-drive layout: sizes that are fixed for a pool's life, and the arithmetic over them.

use format::limits::{BLOCK_BYTES, DRIVE_ZONES_MIN, SUPERBLOCK_SLOT, ZONE_MAX, ZONE_MIN};
use format::{Column, Row, Scheme, Superblock, ZoneIndex};

use crate::invariant::narrow;

/// Sizes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Scheme of new segments.
    pub(crate) scheme: Scheme,
    /// Maximum number of columns in a segment table entry.
    pub(crate) table_width: u8,
    /// Size of a zone, in bytes.
    pub(crate) zone_bytes: u64,
    /// Byte offset of the first zone.
    pub(crate) data_start: u64,
}

/// Desired number of zones per drive: the cleaner needs a choice of victims.
const ZONES_WANTED: u64 = 2048;
/// Smallest zone size chosen for a new pool.
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
        narrow(self.zone_bytes / BLOCK_BYTES, "C5")
    }

    /// Data blocks of a segment.
    pub(crate) fn segment_blocks(&self) -> u64 {
        u64::from(self.rows()) * u64::from(self.scheme.data())
    }

    /// Blocks of a segment available for live data: the rest holds record headers, at least.
    pub(crate) fn segment_payload(&self) -> u64 {
        self.segment_blocks() - self.segment_blocks().div_ceil(self.meta_blocks() as u64 + 1)
    }

    /// Largest number of blocks that a write puts into one record, and so makes atomic across a
    /// crash: 64, fewer if segments are tiny.
    pub(crate) fn atomic_blocks(&self) -> u32 {
        (self.rows() * u32::from(self.scheme.data()) / 4).clamp(1, 64)
    }

    /// Maximum number of nodes or table blocks in one request: a request must fit any segment.
    pub(crate) fn meta_blocks(&self) -> usize {
        (self.rows() as usize * usize::from(self.scheme.data()) / 4).clamp(1, 128)
    }

    /// Number of zones on a drive of `size` bytes.
    pub(crate) fn zones(&self, size: u64) -> u32 {
        let zones = size.saturating_sub(self.data_start) / self.zone_bytes;
        // The rest of a larger drive is not used.
        narrow(zones.min(u64::from(u32::MAX)), "C5")
    }

    /// Returns the zone at a byte offset of a drive; `None` before the first zone.
    pub(crate) fn zone_at(&self, offset: u64) -> Option<ZoneIndex> {
        let zone = offset.checked_sub(self.data_start)? / self.zone_bytes;
        u32::try_from(zone).ok().map(ZoneIndex::new)
    }

    /// Byte offset of a zone.
    pub(crate) fn zone_offset(&self, zone: ZoneIndex) -> u64 {
        self.data_start + u64::from(zone.get()) * self.zone_bytes
    }
}

/// Zone size for a pool with a smallest drive of `size` bytes: 1 to 64 MiB.
pub(crate) fn zone_bytes_for(size: u64) -> u64 {
    let wanted = (size / ZONES_WANTED).max(1);
    let power = 1 << wanted.ilog2();
    u64::clamp(power, PRODUCT_ZONE_MIN, ZONE_MAX)
}

/// Byte offset of the first zone: after the superblocks, aligned to the zone size.
pub(crate) fn data_start_for(zone_bytes: u64) -> u64 {
    (2 * SUPERBLOCK_SLOT).next_multiple_of(zone_bytes)
}

/// Minimum drive size for a pool with zones of this size.
pub(crate) fn drive_bytes_min(zone_bytes: u64) -> u64 {
    assert!((ZONE_MIN..=ZONE_MAX).contains(&zone_bytes), "invalid zone size: {zone_bytes} bytes");
    data_start_for(zone_bytes) + DRIVE_ZONES_MIN * zone_bytes
}

/// One of the two superblock slots of a drive. A new superblock overwrites the older slot, so a
/// torn write leaves the newest complete superblock intact.
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

    /// Byte offset of the slot on the drive.
    pub(crate) fn offset(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Second => SUPERBLOCK_SLOT,
        }
    }
}

/// Layout of a record's header and payload blocks: column-major over the record's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordLayout {
    /// First row.
    pub(crate) row: Row,
    /// Number of rows.
    pub(crate) rows: u32,
}

impl RecordLayout {
    /// Returns the layout of a record of `blocks` blocks, header included, that starts at `row`.
    pub(crate) fn new(scheme: Scheme, row: Row, blocks: u32) -> Self {
        let rows = scheme.rows_for(blocks);
        assert!(
            blocks > 0 && rows * u32::from(scheme.data()) >= blocks,
            "R2: a record's rows hold its blocks"
        );
        Self { row, rows }
    }

    /// Returns the column and row of block `index`.
    pub(crate) fn place(&self, index: u32) -> (Column, Row) {
        let column = narrow(index / self.rows, "R2");
        (Column::new(column), self.row.plus(index % self.rows))
    }

    /// First row after the record.
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
    fn a_record_is_laid_out_column_by_column() {
        let layout = RecordLayout::new(Scheme::new(4, 1).unwrap(), Row::new(10), 10);
        assert_eq!(layout.rows, 3);
        let places: Vec<_> =
            (0..10).map(|index| layout.place(index)).map(|(c, r)| (c.get(), r.get())).collect();
        assert_eq!(places[..4], [(0, 10), (0, 11), (0, 12), (1, 10)]);
        assert_eq!(places[9], (3, 10));
        assert_eq!(layout.end(), Row::new(13));
    }
}
