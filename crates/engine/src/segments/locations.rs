//! Locations of cells: a flat table of all segments' columns for the read path.
//!
//! Always true: it matches the segment records. Must not know: the reasons for moving columns.

use format::{Address, Column, DriveIndex, Row, SegmentId};

use super::{Segments, slot};

/// Location of a cell on a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellLocation {
    /// The drive.
    pub(crate) drive: DriveIndex,
    /// Byte offset on the drive.
    pub(crate) offset: u64,
}

/// Location of a column.
#[derive(Clone, Copy)]
pub(super) struct ColumnLocation {
    base: u64,
    missing_from: u32,
    drive: DriveIndex,
}

impl ColumnLocation {
    /// A column that was never written.
    pub(super) const UNWRITTEN: Self = Self { base: 0, missing_from: 0, drive: DriveIndex::new(0) };
}

impl Segments {
    /// Marks the columns of a newly opened segment on offline drives as never written.
    pub(crate) fn mark_unwritten(&mut self, id: SegmentId, in_use: impl Fn(DriveIndex) -> bool) {
        let columns = self.get_mut(id).record.columns.iter_mut();
        for column in columns.filter(|column| column.zone.is_some_and(|(drive, _)| !in_use(drive))) {
            column.missing_from = Row::new(0);
        }
        self.update_locations(id);
    }

    pub(super) fn width(&self) -> usize {
        usize::from(self.geometry.table_width)
    }

    /// Updates the location table from a segment's record.
    pub(super) fn update_locations(&mut self, id: SegmentId) {
        let (width, geometry) = (self.width(), self.geometry);
        let Some(Some(segment)) = self.slots.get(slot(id)) else { return };
        let places = self.places.iter_mut().skip(slot(id) * width);
        for (place, column) in places.zip(&segment.record.columns) {
            *place = match column.zone {
                Some((drive, zone)) => {
                    let base = geometry.zone_offset(zone);
                    ColumnLocation { base, missing_from: column.missing_from.get(), drive }
                }
                None => ColumnLocation::UNWRITTEN,
            };
        }
    }

    /// Returns the location of a block's cell; `None` if it was not written.
    pub(crate) fn cell(&self, address: Address) -> Option<CellLocation> {
        self.cell_at(address.segment(), address.column(), address.row())
    }

    /// Returns the location of the cell of `column` and `row`; `None` if it was not written.
    pub(crate) fn cell_at(&self, id: SegmentId, column: Column, row: Row) -> Option<CellLocation> {
        let place = self.places.get(slot(id) * self.width() + column.index())?;
        if row.get() >= place.missing_from {
            return None;
        }
        let offset = place.base + u64::from(row.get()) * format::limits::BLOCK_BYTES;
        Some(CellLocation { drive: place.drive, offset })
    }
}
