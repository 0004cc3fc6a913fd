//! Incomplete segments, and moving columns to other zones.
//!
//! A column moves after its cells are written and flushed elsewhere. Always true (S3): the old zone
//! is released only when a checkpoint started after the move is durable, because a recovery from an
//! earlier checkpoint looks for the column in the old zone, and when all reads planned before the
//! move have ended.
//!
//! Must not know: the computation of columns, and the free zones.

use format::{
    Column, DriveIndex, Incarnation, Row, Scheme, SegmentColumn, SegmentId, SegmentRecord, ZoneIndex,
};
use smallvec::SmallVec;

use super::{CheckpointMark, SegmentPhase, Segments};
use crate::drives::DriveUse;
use crate::invariant::narrow;

/// A segment with columns that are missing or must leave their drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incomplete {
    pub(crate) id: SegmentId,
    pub(crate) incarnation: Incarnation,
    pub(crate) scheme: Scheme,
    /// Number of rows written.
    pub(crate) rows: u32,
    /// Columns that are missing completely or in part.
    pub(crate) missing: SmallVec<[Column; 4]>,
    /// Readable columns that must move to another drive.
    pub(crate) draining: SmallVec<[Column; 4]>,
    /// The drive of each column, including failed drives.
    drives: SmallVec<[(Column, DriveIndex); 8]>,
    /// The segment is sealed, and all of its records are applied and flushed.
    pub(crate) stable: bool,
}

/// A zone that a column was moved away from.
pub(super) struct Vacated {
    id: SegmentId,
    zone: (DriveIndex, ZoneIndex),
    /// Number of checkpoints started before the move.
    checkpoints: u64,
    /// All reads planned before the move have ended.
    drained: bool,
}

impl Segments {
    /// Returns the incomplete segments that are not freed. `drive_use` returns the state of a
    /// drive.
    pub(crate) fn incomplete(&self, drive_use: impl Fn(DriveIndex) -> DriveUse) -> Vec<Incomplete> {
        let ids = self.ids().filter(|id| !matches!(self.get(*id).phase, SegmentPhase::Freed { .. }));
        ids.filter_map(|id| self.incomplete_one(id, &drive_use)).collect()
    }

    /// Returns the missing columns of a segment; `None` if it is complete.
    pub(crate) fn incomplete_one(
        &self,
        id: SegmentId,
        drive_use: impl Fn(DriveIndex) -> DriveUse,
    ) -> Option<Incomplete> {
        let segment = self.get(id);
        let record = &segment.record;
        let rows = segment.append;
        // In an open segment, a column without the rows of the next record counts as missing.
        let end = if segment.phase == SegmentPhase::Open { Row::new(self.geometry.rows()) } else { rows };
        let state = |column: &SegmentColumn| match column.zone {
            Some((drive, _)) if column.missing_from >= end => match drive_use(drive) {
                // A damaged column is rewritten elsewhere, like a column on a draining drive.
                DriveUse::Active if column.damaged => DriveUse::Draining,
                drive_use => drive_use,
            },
            _ => DriveUse::Failed,
        };
        let numbered = || (0..).map(Column::new).zip(&record.columns);
        let columns_with = |wanted| {
            let columns = numbered().filter(move |(_, column)| state(column) == wanted);
            columns.map(|(at, _)| at).collect::<SmallVec<_>>()
        };
        let (missing, draining) = (columns_with(DriveUse::Failed), columns_with(DriveUse::Draining));
        if missing.is_empty() && draining.is_empty() {
            return None;
        }
        let drives = numbered().filter_map(|(at, column)| Some((at, column.zone?.0)));
        Some(Incomplete {
            id,
            incarnation: record.incarnation,
            scheme: record.scheme,
            rows: rows.get(),
            missing,
            draining,
            drives: drives.collect(),
            stable: segment.phase == SegmentPhase::Sealed
                && segment.in_flight == 0
                && segment.applied == rows
                && segment.flushed == rows,
        })
    }

    /// Returns the missing columns if the segment still has this incarnation; `None` if it is freed
    /// or complete.
    pub(crate) fn recheck_incomplete(
        &self,
        id: SegmentId,
        incarnation: Incarnation,
        drive_use: impl Fn(DriveIndex) -> DriveUse,
    ) -> Option<Incomplete> {
        let segment = self.slots.get(super::slot(id))?.as_ref()?;
        let current =
            segment.record.incarnation == incarnation && !matches!(segment.phase, SegmentPhase::Freed { .. });
        if current { self.incomplete_one(id, drive_use) } else { None }
    }

    /// Marks all columns on an offline drive as missing from the first row, because the drive's
    /// contents cannot be trusted.
    pub(crate) fn invalidate_drive(&mut self, drive: DriveIndex) {
        let ids: Vec<_> = self.ids().collect();
        for id in ids {
            let columns = self.get_mut(id).record.columns.iter_mut();
            let on_it = columns.filter(|column| column.zone.is_some_and(|(on, _)| on == drive));
            on_it.for_each(|column| column.missing_from = Row::new(0));
            self.update_locations(id);
        }
        self.version += 1;
    }

    /// Marks a column as damaged, so that it is rewritten. The next checkpoint stores the mark. The
    /// caller has pinned the segment, or the segment cannot be freed yet.
    pub(crate) fn mark_damaged(&mut self, id: SegmentId, column: Column) {
        match self.get_mut(id).record.columns.get_mut(column.index()) {
            Some(column) => column.damaged = true,
            None => panic!("segment {id} has no column {column}"),
        }
    }

    /// Incarnation of each segment with unrepaired damage, and the number of damaged columns.
    pub(crate) fn damaged(&self) -> impl Iterator<Item = (Incarnation, u32)> {
        let live = self
            .slots
            .iter()
            .flatten()
            .filter(|segment| !matches!(segment.phase, SegmentPhase::Freed { .. }));
        let counted = live.map(|segment| {
            let damaged = segment.record.columns.iter().filter(|column| column.damaged).count();
            (segment.record.incarnation, narrow(damaged, "C5"))
        });
        counted.filter(|(_, damaged)| *damaged > 0)
    }

    /// Returns the oldest segment with an incarnation above `after` and up to `until` that is not
    /// freed.
    pub(crate) fn next_to_scrub(
        &self,
        after: Incarnation,
        until: Incarnation,
    ) -> Option<(SegmentId, Incarnation)> {
        self.to_scrub(after, until).map(|(id, incarnation, _)| (id, incarnation)).min_by_key(|(_, age)| *age)
    }

    /// Number of written cells in these segments.
    pub(crate) fn cells_to_scrub(&self, after: Incarnation, until: Incarnation) -> u64 {
        self.to_scrub(after, until).map(|(.., cells)| cells).sum()
    }

    fn to_scrub(
        &self,
        after: Incarnation,
        until: Incarnation,
    ) -> impl Iterator<Item = (SegmentId, Incarnation, u64)> {
        let live = self.ids().filter(|id| !matches!(self.get(*id).phase, SegmentPhase::Freed { .. }));
        let segments = live.map(|id| {
            let segment = self.get(id);
            let cells = u64::from(segment.applied.get()) * u64::from(segment.record.scheme.width());
            (id, segment.record.incarnation, cells)
        });
        segments.filter(move |(_, incarnation, _)| *incarnation > after && *incarnation <= until)
    }

    /// Returns the segment's record up to its last applied row; `None` if it is freed.
    pub(crate) fn applied_record(&self, id: SegmentId) -> Option<SegmentRecord> {
        let segment = self.get(id);
        let rows = segment.applied.get();
        let present = !matches!(segment.phase, SegmentPhase::Freed { .. });
        present.then(|| SegmentRecord { rows, ..segment.record.clone() })
    }

    /// Returns true if the segment is open.
    pub(crate) fn is_open(&self, id: SegmentId) -> bool {
        self.get(id).phase == SegmentPhase::Open
    }

    /// Returns true if the segment still has this incarnation and is sealed.
    pub(crate) fn needs_columns(&self, id: SegmentId, incarnation: Incarnation) -> bool {
        let segment = self.slots.get(super::slot(id)).and_then(Option::as_ref);
        segment.is_some_and(|segment| {
            segment.record.incarnation == incarnation && segment.phase == SegmentPhase::Sealed
        })
    }

    /// Records that all rows of a column are written and flushed in another zone. The old zone is
    /// returned by [`Segments::release_vacated`].
    pub(crate) fn move_column(&mut self, id: SegmentId, column: Column, to: (DriveIndex, ZoneIndex)) {
        let checkpoints = self.checkpoints;
        let segment = self.get_mut(id);
        assert!(segment.phase == SegmentPhase::Sealed, "S3: only sealed segments change");
        let elsewhere =
            segment.record.columns.iter().all(|other| other.zone.is_none_or(|(on, _)| on != to.0));
        let Some(place) = segment.record.columns.get_mut(column.index()) else {
            panic!("segment {id} has no column {column}")
        };
        assert!(
            elsewhere || place.zone.is_some_and(|(on, _)| on == to.0),
            "Z1: two columns of segment {id} on drive {}",
            to.0
        );
        let left = std::mem::replace(place, SegmentColumn::whole(to.0, to.1)).zone;
        let drained = segment.readers == 0;
        self.vacated.extend(left.map(|zone| Vacated { id, zone, checkpoints, drained }));
        self.update_locations(id);
    }

    /// Marks the old zones of a segment as unread after the last pin was dropped.
    pub(super) fn drained(&mut self, id: SegmentId) {
        self.vacated.iter_mut().filter(|zone| zone.id == id).for_each(|zone| zone.drained = true);
    }

    /// Returns zones that columns left before the checkpoint at `mark`, which is now durable (S3).
    pub(super) fn release_vacated(&mut self, mark: &CheckpointMark) -> Vec<(DriveIndex, ZoneIndex)> {
        let back = |zone: &mut Vacated| zone.drained && zone.checkpoints < mark.checkpoint;
        self.vacated.extract_if(.., back).map(|vacated| vacated.zone).collect()
    }
}

impl Incomplete {
    /// Number of blocks to write.
    pub(crate) fn blocks(&self) -> u64 {
        u64::from(self.rows) * (self.missing.len() + self.draining.len()) as u64
    }

    /// Drives that `column` must not be written to: those of the other columns, complete or not.
    pub(crate) fn avoid(&self, column: Column) -> impl Iterator<Item = DriveIndex> {
        self.drives.iter().filter(move |(of, _)| *of != column).map(|(_, drive)| *drive)
    }

    /// The columns to write.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Column> {
        self.missing.iter().chain(&self.draining).copied()
    }

    /// Number of further drive failures that the segment tolerates; repair starts with the lowest.
    pub(crate) fn losses_left(&self) -> usize {
        usize::from(self.scheme.parity()).saturating_sub(self.missing.len())
    }
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
