//! Segments and checkpoints: what one remembers of them, what a recovery has to look at behind it, and what it gives back (S3).
//!
//! Must not know: how a checkpoint is stored.

use std::collections::BTreeMap;

use format::{DriveIndex, MapEntry, Row, SegmentId, SegmentRecord, ZoneIndex};

use super::{SegmentPhase, Segments, slot};

/// What a checkpoint remembers of the segments at its start.
pub(crate) struct CheckpointMark {
    pub(super) checkpoint: u64,
    /// Live counts, in segment order; adjusted as nodes are stored.
    pub(crate) live: Vec<u32>,
    from: BTreeMap<SegmentId, Row>,
    /// Incarnations above this were born later.
    born: u64,
}

impl CheckpointMark {
    /// Leaves the pointers of the tables out of the counts: storing the counts changes them. They are counted in again
    /// when the tables are loaded.
    pub(crate) fn leave_out(&mut self, tables: &[MapEntry]) {
        for entry in tables {
            self.replace_reference(*entry, MapEntry::ABSENT);
        }
    }

    /// A node pointer of the frozen map changed.
    pub(crate) fn replace_reference(&mut self, old: MapEntry, new: MapEntry) {
        if let Some(address) = new.address() {
            let index = slot(address.segment());
            if self.live.len() <= index {
                self.live.resize(index + 1, 0);
            }
            if let Some(live) = self.live.get_mut(index) {
                *live += 1;
            }
        }
        if let Some(address) = old.address()
            && let Some(live) = self.live.get_mut(slot(address.segment()))
        {
            assert!(*live > 0, "S1: a stored node is not counted");
            *live -= 1;
        }
    }
}

impl Segments {
    /// Segments of which a recovery would have to read something: from which row, and how they are stored.
    pub(crate) fn recent(&self) -> Vec<(SegmentId, Row, SegmentRecord)> {
        let listed =
            self.recent.iter().filter_map(|id| Some((*id, self.get(*id).replay_from?, self.record(*id))));
        listed.collect()
    }

    /// Number of segments that [`Segments::recent`] would list.
    pub(crate) fn recent_count(&self) -> usize {
        self.recent.len()
    }

    /// Begins a checkpoint: the live counts now, and for each segment the row from which a recovery on top of the
    /// checkpoint would have to look.
    pub(crate) fn begin_checkpoint(&mut self) -> CheckpointMark {
        self.checkpoints += 1;
        let from = self.recent.iter().filter_map(|id| {
            let segment = self.get(*id);
            if self.is_ahead(&segment.record) {
                return segment.replay_from.map(|row| (*id, row));
            }
            let more = segment.phase == SegmentPhase::Open || segment.applied < segment.append;
            more.then_some((*id, segment.applied))
        });
        CheckpointMark {
            checkpoint: self.checkpoints,
            live: self.live.clone(),
            from: from.collect(),
            born: self.newest,
        }
    }

    /// The checkpoint begun at `mark` is about to be published: recoveries look from the mark on.
    pub(crate) fn end_checkpoint(&mut self, mark: &CheckpointMark) {
        for id in self.recent.clone() {
            let segment = self.get_mut(id);
            if segment.record.incarnation.get() > mark.born {
                continue;
            }
            segment.replay_from = mark.from.get(&id).copied();
            if segment.replay_from.is_none() {
                assert_eq!(segment.flushed, segment.append, "a checkpoint holds what was not flushed");
                self.recent.remove(&id);
            }
        }
    }

    /// Segments that were freed before the checkpoint at `mark` began, which is durable now, are gone: gives their zones,
    /// which may be used again, and those that columns had left before (S3).
    pub(crate) fn release(&mut self, mark: &CheckpointMark) -> Vec<(DriveIndex, ZoneIndex)> {
        let mut released = self.release_vacated(mark);
        for (index, place) in self.slots.iter_mut().enumerate() {
            let gone = place.as_ref().is_some_and(|segment| {
                let before =
                    matches!(segment.phase, SegmentPhase::Freed { checkpoints } if checkpoints < mark.checkpoint);
                before && segment.readers == 0
            });
            if gone && let Some(segment) = place.take() {
                released.extend(segment.record.columns.iter().filter_map(|column| column.zone));
                self.freed -= 1;
                self.taken = self.taken.min(index);
            }
        }
        released
    }

    /// The segment table as the checkpoint at `mark` stores it.
    pub(crate) fn stored(&self, mark: &CheckpointMark) -> Vec<Option<SegmentRecord>> {
        let ids = 1..=u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        ids.map(SegmentId::new)
            .map(|id| {
                let segment = self.slots.get(slot(id))?.as_ref()?;
                let gone =
                    matches!(segment.phase, SegmentPhase::Freed { checkpoints } if checkpoints < mark.checkpoint);
                (!gone).then(|| self.record(id))
            })
            .collect()
    }
}
