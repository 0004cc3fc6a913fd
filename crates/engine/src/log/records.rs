//! The records in flight, and the sequence numbers of a shard's log.
//!
//! Owns every record from the start of its writes until it is applied. Always true: the sequences
//! of the records in flight follow the last applied one without gaps (L1), and only applied records
//! are durable (L4). Plain state: must not know drives, the map, tasks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use format::{SegmentId, Sequence};

use super::request::{Batch, WriteClass};
use crate::geometry::RecordLayout;
use crate::write_waits::{WriteWait, WriteWaitCounts};

/// A record being written.
pub(super) struct PendingRecord {
    pub(super) sequence: Sequence,
    pub(super) segment: SegmentId,
    pub(super) layout: RecordLayout,
    pub(super) header_blocks: u32,
    pub(super) crcs: Vec<u32>,
    pub(super) batch: RefCell<Batch>,
    pub(super) write_class: WriteClass,
    written: Cell<bool>,
}

impl PendingRecord {
    /// Returns a record whose writes have begun.
    pub(super) fn new(
        sequence: Sequence,
        (segment, layout): (SegmentId, RecordLayout),
        crcs: Vec<u32>,
        batch: Batch,
        write_class: WriteClass,
    ) -> Rc<Self> {
        assert_eq!(crcs.len(), batch.payload as usize, "R3: every payload block has a CRC");
        assert!(!batch.requests.is_empty() && batch.header_blocks > 0, "R3: a record holds a request");
        Rc::new(Self {
            sequence,
            segment,
            layout,
            header_blocks: batch.header_blocks,
            crcs,
            batch: RefCell::new(batch),
            write_class,
            written: Cell::new(false),
        })
    }
}

/// The records in flight. See the module documentation.
pub(super) struct RecordsInFlight {
    records: VecDeque<Rc<PendingRecord>>,
    /// The sequence of the next record.
    next: Sequence,
    /// The sequence of the last applied record.
    applied: Sequence,
    /// The sequence up to which everything was flushed after it was written.
    durable: Sequence,
}

impl RecordsInFlight {
    /// `last` is the last record of the shard's history; it and all before it are durable.
    pub(super) fn new(last: Sequence) -> Self {
        Self { records: VecDeque::new(), next: last.next(), applied: last, durable: last }
    }

    /// Returns the number of records in flight.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the numbers of client requests in flight, by their waits.
    pub(super) fn write_waits(&self) -> WriteWaitCounts {
        let mut counts = WriteWaitCounts::default();
        let of_clients =
            |record: &&Rc<PendingRecord>| matches!(record.write_class, WriteClass::User | WriteClass::Trim);
        for record in self.records.iter().filter(of_clients) {
            let wait = if record.written.get() { WriteWait::EarlierRecord } else { WriteWait::Drives };
            counts.add(wait, record.batch.borrow().requests.len() as u64);
        }
        counts
    }

    /// Returns the sequence of the next record.
    pub(super) fn next(&self) -> Sequence {
        self.next
    }

    /// Returns the sequence of the last applied record.
    pub(super) fn applied(&self) -> Sequence {
        self.applied
    }

    /// Returns the sequence up to which everything is durable.
    pub(super) fn durable(&self) -> Sequence {
        self.durable
    }

    /// Adds a record whose writes have begun.
    pub(super) fn push(&mut self, record: Rc<PendingRecord>) {
        assert_eq!(record.sequence, self.next, "L1: sequences have no gaps");
        let in_flight = self.records.len() as u64;
        assert_eq!(
            record.sequence.get(),
            self.applied.get() + in_flight + 1,
            "L1: every record that is not applied is in flight"
        );
        self.next = self.next.next();
        self.records.push_back(record);
    }

    /// Marks a record as written on all columns in use.
    pub(super) fn mark_written(&self, record: &PendingRecord) {
        assert!(record.sequence > self.applied, "L2: a record is applied before it is written");
        record.written.set(true);
    }

    /// Marks all records as ended: the log has failed, and abandons them.
    pub(super) fn mark_all_ended(&self) {
        self.records.iter().for_each(|record| record.written.set(true));
    }

    /// Takes the next record to apply, if it is written.
    pub(super) fn pop_written(&mut self) -> Option<Rc<PendingRecord>> {
        self.records.pop_front_if(|record| record.written.get())
    }

    /// Notes that a record was applied.
    pub(super) fn set_applied(&mut self, record: &PendingRecord) {
        assert!(record.written.get(), "L2: a record is applied before it is written");
        assert_eq!(record.sequence, self.applied.next(), "L1: records are applied in order");
        self.applied = record.sequence;
    }

    /// Notes that every record up to `sequence` is durable.
    pub(super) fn set_durable(&mut self, sequence: Sequence) {
        assert!(sequence <= self.applied, "L4: only applied records are durable");
        self.durable = self.durable.max(sequence);
    }
}

#[cfg(test)]
#[path = "records_tests.rs"]
mod tests;
