//! The events that a write can wait for, as one list.
//!
//! A write of a client passes several gates before it is acknowledged. Each gate names its event
//! here, so that the status of a pool and the trace of a shard say why writes wait at a moment.
//! Plain state; must not know the gates.

use std::cell::Cell;

/// Number of events.
const COUNT: usize = 12;

/// The event that a write waits for, in the order in which a write meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteWait {
    /// Admission by the fair scheduler, where several volumes compete.
    Admission,
    /// A snapshot, clone or rollback of the volume, which holds its writes for a moment.
    Snapshot,
    /// An unaligned or compare-and-write operation on the same blocks.
    OverlappingWrite,
    /// Memory of the map, which a checkpoint frees by storing dirty nodes.
    MapMemory,
    /// The cleaner, which owes moved blocks for those that clients wrote.
    CleanerDebt,
    /// A checkpoint, which releases freed segments.
    Checkpoint,
    /// The cleaner, which frees a segment.
    Cleaner,
    /// The cleaners of the other shards.
    OtherShards,
    /// A new segment, which is being recorded in the superblocks.
    SegmentOpening,
    /// The end of an earlier record: as many as allowed are in flight.
    RecordSlot,
    /// The drives, which are writing its record.
    Drives,
    /// An earlier record: its own is written.
    EarlierRecord,
}

impl WriteWait {
    /// All events, in the order in which a write meets them.
    pub const ALL: [Self; COUNT] = [
        Self::Admission,
        Self::Snapshot,
        Self::OverlappingWrite,
        Self::MapMemory,
        Self::CleanerDebt,
        Self::Checkpoint,
        Self::Cleaner,
        Self::OtherShards,
        Self::SegmentOpening,
        Self::RecordSlot,
        Self::Drives,
        Self::EarlierRecord,
    ];

    /// Returns the name of the event, as status and trace events show it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Snapshot => "snapshot",
            Self::OverlappingWrite => "overlapping-write",
            Self::MapMemory => "map-memory",
            Self::CleanerDebt => "cleaner-debt",
            Self::Checkpoint => "checkpoint",
            Self::Cleaner => "cleaner",
            Self::OtherShards => "other-shards",
            Self::SegmentOpening => "segment-opening",
            Self::RecordSlot => "record-slot",
            Self::Drives => "drives",
            Self::EarlierRecord => "earlier-record",
        }
    }
}

/// Number of writes that wait, for each event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteWaitCounts([u64; COUNT]);

impl WriteWaitCounts {
    /// Iterates over all events and the number of writes that wait for each.
    pub fn iter(&self) -> impl Iterator<Item = (WriteWait, u64)> {
        WriteWait::ALL.into_iter().zip(self.0)
    }

    /// Adds the counts of another shard or gate.
    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|(wait, writes)| self.add(wait, writes));
    }

    /// Adds writes that wait for an event.
    pub(crate) fn add(&mut self, wait: WriteWait, writes: u64) {
        let count = WriteWait::ALL.iter().zip(&mut self.0).find(|(other, _)| **other == wait);
        match count {
            Some((_, count)) => *count += writes,
            None => panic!("{wait:?} is not in the list of waits"),
        }
    }
}

/// The writes that wait at the gates of a shard in front of its log.
#[derive(Default)]
pub(crate) struct WriteWaits {
    counts: Cell<WriteWaitCounts>,
}

/// A write that waits; its wait ends when this is dropped.
pub(crate) struct WaitingWrite<'a> {
    waits: &'a WriteWaits,
    wait: WriteWait,
}

impl WriteWaits {
    /// Notes that a write waits for an event, until the returned guard is dropped.
    pub(crate) fn begin(&self, wait: WriteWait) -> WaitingWrite<'_> {
        tracing::trace!(wait = wait.name(), "a write waits");
        let mut counts = self.counts.get();
        counts.add(wait, 1);
        self.counts.set(counts);
        WaitingWrite { waits: self, wait }
    }

    /// Returns the writes that wait now.
    pub(crate) fn counts(&self) -> WriteWaitCounts {
        self.counts.get()
    }
}

impl Drop for WaitingWrite<'_> {
    fn drop(&mut self) {
        let mut counts = self.waits.counts.get();
        for (wait, count) in WriteWait::ALL.iter().zip(&mut counts.0) {
            if *wait == self.wait {
                assert!(*count > 0, "a wait ends once");
                *count -= 1;
            }
        }
        self.waits.counts.set(counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_until_they_end() {
        let waits = WriteWaits::default();
        let first = waits.begin(WriteWait::Snapshot);
        let second = waits.begin(WriteWait::Snapshot);
        let map = waits.begin(WriteWait::MapMemory);
        let waiting =
            |counts: WriteWaitCounts| counts.iter().filter(|(_, writes)| *writes > 0).collect::<Vec<_>>();
        assert_eq!(waiting(waits.counts()), [(WriteWait::Snapshot, 2), (WriteWait::MapMemory, 1)]);
        drop((first, map));
        assert_eq!(waiting(waits.counts()), [(WriteWait::Snapshot, 1)]);
        let mut sum = waits.counts();
        sum.add_all(&waits.counts());
        assert_eq!(waiting(sum), [(WriteWait::Snapshot, 2)]);
        drop(second);
        assert_eq!(waits.counts(), WriteWaitCounts::default());
    }

    #[test]
    fn every_event_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = WriteWait::ALL.iter().map(|wait| wait.name()).collect();
        assert_eq!(names.len(), COUNT);
    }
}
