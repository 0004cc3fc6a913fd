//! The end of the log: open segments, records in flight, and the way of a batch onto the drives.
//!
//! Owns the open segments ([`OpenSegments`]) and the records in flight ([`RecordsInFlight`]).
//! Always true: a record is complete rows within one open segment (R2), and its columns are on
//! different drives (Z1). Must not know: queues, writers' replies, the reasons why a write waits.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use codec::Code;
use format::{Column, DriveIndex, RecordLocation, Scheme, SegmentClass, SegmentId, Sequence, ShardRecord};
use reactor::IoResult;
use smallvec::SmallVec;

use super::checkpoint_schedule::CheckpointSchedule;
use super::identity::Identity;
use super::open_segments::OpenSegments;
use super::records::{PendingRecord, RecordsInFlight};
use super::request::{Batch, WriteClass};
use super::stripe::{StripeBuilder, StripeColumns};
use crate::control_link::ControlLink;
use crate::geometry::{Geometry, RecordLayout};
use crate::in_flight::InFlight;
use crate::row_reader::RowReader;
use crate::segments::AppendRoom;
use crate::space::Space;

/// The writes of a record, one per column on a drive in use.
pub(super) type Writes = SmallVec<[(DriveIndex, InFlight); 8]>;
/// Their results.
pub(super) type WriteResults = SmallVec<[(DriveIndex, IoResult); 8]>;

/// The end of a shard's log. See the module documentation.
pub(crate) struct Appender {
    pub(super) identity: Identity,
    pub(super) geometry: Geometry,
    pub(super) rows: Rc<RowReader>,
    pub(super) link: ControlLink,
    pub(super) space: Arc<Space>,
    pub(super) checkpoints: Rc<CheckpointSchedule>,
    /// Maximum number of segments opened since the last checkpoint.
    pub(super) recent_max: usize,
    pub(super) open: OpenSegments,
    pub(super) records: RefCell<RecordsInFlight>,
}

/// An open segment, its scheme and the room in it.
#[derive(Clone, Copy)]
pub(super) struct AppendPlace {
    pub(super) segment: SegmentId,
    pub(super) scheme: Scheme,
    pub(super) room: AppendRoom,
}

impl Appender {
    /// Returns the scheme of segments of this class.
    pub(super) fn scheme_of(&self, class: SegmentClass) -> Scheme {
        match class {
            SegmentClass::Hot | SegmentClass::Cold | SegmentClass::Map => self.geometry.scheme,
            SegmentClass::Mirror => self.geometry.scheme.mirror(),
        }
    }

    /// Returns the shard's state as the superblocks store it.
    pub(crate) fn shard_record(&self) -> ShardRecord {
        let (root, checkpointed) = self.checkpoints.anchor();
        ShardRecord { root, checkpointed, recent: self.rows.segments.borrow().recent() }
    }

    /// Returns the sequence of the last applied record.
    pub(crate) fn applied(&self) -> Sequence {
        self.records.borrow().applied()
    }

    /// Builds a record at the end of an open segment and starts its writes.
    pub(super) fn append(
        &self,
        place: AppendPlace,
        batch: Batch,
        write_class: WriteClass,
    ) -> (Rc<PendingRecord>, Writes) {
        let AppendPlace { segment, scheme, room } = place;
        let layout = RecordLayout::new(scheme, room.row, batch.blocks());
        assert!(layout.rows > 0 && layout.rows <= room.rows, "R2: a record fits its segment");
        let incarnation = {
            let mut segments = self.rows.segments.borrow_mut();
            segments.append(segment, layout.rows);
            segments.record(segment).incarnation
        };
        let (sequence, durable) = {
            let records = self.records.borrow();
            (records.next(), records.durable())
        };
        let location = RecordLocation {
            pool: self.identity.pool,
            shard: self.identity.shard,
            segment,
            incarnation,
            row: room.row,
            sequence,
            durable,
        };
        let code: Rc<Code> = self.rows.code(scheme);
        let mut builder = StripeBuilder::new(&batch, scheme, &code, layout);
        let columns = builder.build(&location, &self.identity.key);
        let writes = self.start_writes(&location, scheme, &columns);
        let record = PendingRecord::new(sequence, (segment, layout), builder.into_crcs(), batch, write_class);
        self.records.borrow_mut().push(record.clone());
        (record, writes)
    }

    /// Starts one write per column that is on a drive in use.
    fn start_writes(&self, place: &RecordLocation, scheme: Scheme, columns: &StripeColumns) -> Writes {
        let segments = self.rows.segments.borrow();
        let write = |column| {
            let cell = segments.cell_at(place.segment, Column::new(column), place.row)?;
            Some((cell.drive, self.rows.drives.write(cell.drive, cell.offset, &[columns.column(column)])?))
        };
        let writes: Writes = (0..scheme.width()).filter_map(write).collect();
        let drives = writes.iter().map(|(drive, _)| *drive);
        assert!(is_distinct(drives), "Z1: two columns of segment {} on one drive", place.segment);
        writes
    }

    /// Returns true if a record's rows can be read: k of its columns were written to drives in use.
    pub(super) fn has_enough_columns(&self, record: &PendingRecord) -> bool {
        let segments = self.rows.segments.borrow();
        let scheme = segments.scheme(record.segment);
        let online = (0..scheme.width()).filter(|column| {
            let cell = segments.cell_at(record.segment, Column::new(*column), record.layout.row);
            cell.is_some_and(|cell| self.rows.drives.is_online(cell.drive))
        });
        online.count() >= usize::from(scheme.data())
    }
}

/// Returns true if no drive occurs twice.
fn is_distinct(drives: impl Iterator<Item = DriveIndex> + Clone) -> bool {
    let mut rest = drives;
    while let Some(drive) = rest.next() {
        if rest.clone().any(|other| other == drive) {
            return false;
        }
    }
    true
}
