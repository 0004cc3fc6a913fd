//! Columns that are not all there, and giving them other zones.
//!
//! A column leaves its zone when what belongs there has been written, and flushed, somewhere else. Always true (S3): the
//! zone that it left is given back only when a checkpoint that was begun after that is durable, because a recovery from an
//! earlier one looks for the column where it was, and when no read that was planned before is running.
//!
//! Must not know: how a column is computed, which zones are free.

use format::{
    Column, DriveIndex, Incarnation, Row, Scheme, SegmentColumn, SegmentId, SegmentRecord, ZoneIndex,
};
use smallvec::SmallVec;

use super::{CheckpointMark, SegmentPhase, Segments};
use crate::drives::DriveUse;

/// A segment that does not have all its columns on drives that stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Incomplete {
    pub(crate) id: SegmentId,
    pub(crate) incarnation: Incarnation,
    pub(crate) scheme: Scheme,
    /// Rows written.
    pub(crate) rows: u32,
    /// The columns that are missing, in part or altogether.
    pub(crate) missing: SmallVec<[Column; 4]>,
    /// Those that are there, on drives that are to be emptied.
    pub(crate) draining: SmallVec<[Column; 4]>,
    /// Where each column lies, or lay.
    places: SmallVec<[(Column, DriveIndex); 8]>,
    /// Nothing is appended any more, and everything in it has landed and is durable.
    pub(crate) stable: bool,
}

/// A zone that a column has left.
pub(super) struct Vacated {
    id: SegmentId,
    zone: (DriveIndex, ZoneIndex),
    /// Checkpoints begun before that.
    checkpoints: u64,
    /// No read that was planned before is running.
    drained: bool,
}

impl Segments {
    /// The segments that miss columns and are worth completing: not those that are free already. `standing` tells of each drive
    /// what becomes of what it holds.
    pub(crate) fn incomplete(&self, standing: impl Fn(DriveIndex) -> DriveUse) -> Vec<Incomplete> {
        let ids = self.ids().filter(|id| !matches!(self.get(*id).phase, SegmentPhase::Freed { .. }));
        ids.filter_map(|id| self.incomplete_one(id, &standing)).collect()
    }

    /// What a segment misses; `None` if it is whole.
    pub(crate) fn incomplete_one(
        &self,
        id: SegmentId,
        standing: impl Fn(DriveIndex) -> DriveUse,
    ) -> Option<Incomplete> {
        let segment = self.get(id);
        let record = &segment.record;
        let rows = segment.append;
        // A column that ends where the next record begins will miss it.
        let end = if segment.phase == SegmentPhase::Open { Row::new(self.geometry.rows()) } else { rows };
        let of = |at: Column, column: &SegmentColumn| match column.zone {
            Some((drive, _)) if column.missing_from >= end => match standing(drive) {
                // What is damaged is written anew elsewhere, like what lies where it cannot stay.
                DriveUse::Active if segment.damaged & bit(at) != 0 => DriveUse::Draining,
                standing => standing,
            },
            _ => DriveUse::Failed,
        };
        let numbered = || (0..).map(Column::new).zip(&record.columns);
        let those = |wanted| {
            let columns = numbered().filter(move |(at, column)| of(*at, column) == wanted);
            columns.map(|(at, _)| at).collect::<SmallVec<_>>()
        };
        let (missing, draining) = (those(DriveUse::Failed), those(DriveUse::Draining));
        if missing.is_empty() && draining.is_empty() {
            return None;
        }
        let places = numbered().filter_map(|(at, column)| Some((at, column.zone?.0)));
        Some(Incomplete {
            id,
            incarnation: record.incarnation,
            scheme: record.scheme,
            rows: rows.get(),
            missing,
            draining,
            places: places.collect(),
            stable: segment.phase == SegmentPhase::Sealed
                && segment.in_flight == 0
                && segment.applied == rows
                && segment.flushed == rows,
        })
    }

    /// What this life of a segment misses; `None` if it is over, or whole by now.
    pub(crate) fn recheck_incomplete(
        &self,
        id: SegmentId,
        incarnation: Incarnation,
        standing: impl Fn(DriveIndex) -> DriveUse,
    ) -> Option<Incomplete> {
        let segment = self.slots.get(super::slot(id))?.as_ref()?;
        let lives =
            segment.record.incarnation == incarnation && !matches!(segment.phase, SegmentPhase::Freed { .. });
        if lives { self.incomplete_one(id, standing) } else { None }
    }

    /// Nothing on a drive that is not in use may be believed: takes all of its columns as missing from their first row.
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

    /// Cells of a column are not what they must be: it is to be written anew. The segment is pinned.
    pub(crate) fn mark_damaged(&mut self, id: SegmentId, column: Column) {
        self.get_mut(id).damaged |= bit(column);
    }

    /// Incarnations of the segments with damage that is not healed, and in how many columns.
    pub(crate) fn damaged(&self) -> impl Iterator<Item = (Incarnation, u32)> {
        let live = self
            .slots
            .iter()
            .flatten()
            .filter(|segment| !matches!(segment.phase, SegmentPhase::Freed { .. }));
        live.filter(|segment| segment.damaged != 0)
            .map(|segment| (segment.record.incarnation, segment.damaged.count_ones()))
    }

    /// The oldest segment that is younger than `after` and not younger than `until`, of those that are not free.
    pub(crate) fn next_to_scrub(
        &self,
        after: Incarnation,
        until: Incarnation,
    ) -> Option<(SegmentId, Incarnation)> {
        self.to_scrub(after, until).map(|(id, incarnation, _)| (id, incarnation)).min_by_key(|(_, age)| *age)
    }

    /// Cells of such segments that are written.
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

    /// The segment as far as what was written has landed, if it is not free.
    pub(crate) fn applied_record(&self, id: SegmentId) -> Option<SegmentRecord> {
        let segment = self.get(id);
        let rows = segment.applied.get();
        let lives = !matches!(segment.phase, SegmentPhase::Freed { .. });
        lives.then(|| SegmentRecord { rows, ..segment.record.clone() })
    }

    /// True if records are appended to a segment.
    pub(crate) fn is_open(&self, id: SegmentId) -> bool {
        self.get(id).phase == SegmentPhase::Open
    }

    /// True if this life of a segment still needs its columns.
    pub(crate) fn needs_columns(&self, id: SegmentId, incarnation: Incarnation) -> bool {
        let segment = self.slots.get(super::slot(id)).and_then(Option::as_ref);
        segment.is_some_and(|segment| {
            segment.record.incarnation == incarnation && segment.phase == SegmentPhase::Sealed
        })
    }

    /// All rows of a column lie in another zone now, flushed; the one that it had comes back by
    /// [`Segments::release_vacated`].
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
        segment.damaged &= !bit(column);
        let drained = segment.readers == 0;
        self.vacated.extend(left.map(|zone| Vacated { id, zone, checkpoints, drained }));
        self.update_locations(id);
    }

    /// Nobody reads a segment any more: reads of zones that its columns have left have ended.
    pub(super) fn drained(&mut self, id: SegmentId) {
        self.vacated.iter_mut().filter(|zone| zone.id == id).for_each(|zone| zone.drained = true);
    }

    /// Zones that columns had left before the checkpoint at `mark` began, which is durable now (S3).
    pub(super) fn release_vacated(&mut self, mark: &CheckpointMark) -> Vec<(DriveIndex, ZoneIndex)> {
        let back = |zone: &mut Vacated| zone.drained && zone.checkpoints < mark.checkpoint;
        self.vacated.extract_if(.., back).map(|vacated| vacated.zone).collect()
    }
}

/// The bit of a column.
fn bit(column: Column) -> u32 {
    1 << column.index()
}

const _: () = assert!(format::limits::COLUMNS_MAX <= u32::BITS as usize);

impl Incomplete {
    /// Blocks that have to be written.
    pub(crate) fn blocks(&self) -> u64 {
        u64::from(self.rows) * (self.missing.len() + self.draining.len()) as u64
    }

    /// The drives that a column must not be written to: those of the others, whether they are whole or not.
    pub(crate) fn avoid(&self, column: Column) -> impl Iterator<Item = DriveIndex> {
        self.places.iter().filter(move |(of, _)| *of != column).map(|(_, drive)| *drive)
    }

    /// The columns that have to be written.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = Column> {
        self.missing.iter().chain(&self.draining).copied()
    }

    /// Losses that it still bears: what bears fewest is completed first.
    pub(crate) fn losses_left(&self) -> usize {
        usize::from(self.scheme.parity()).saturating_sub(self.missing.len())
    }
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
