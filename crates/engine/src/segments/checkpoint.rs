//! Checkpoint support of the segment table: live counts at the start of a checkpoint, replay
//! positions, and the release of zones (S3).
//!
//! Must not know: the stored form of a checkpoint.

use std::collections::BTreeMap;

use format::{DriveIndex, MapEntry, Row, SegmentId, SegmentRecord, ZoneIndex};

use super::{SegmentPhase, Segments, slot};
use crate::invariant::{element, narrow};

/// State of the segments at the start of a checkpoint.
pub(crate) struct CheckpointMark {
    pub(super) checkpoint: u64,
    /// Live counts, in segment order; adjusted as nodes are stored.
    pub(crate) live: Vec<u32>,
    from: BTreeMap<SegmentId, Row>,
    /// Segments with a higher incarnation were opened after the checkpoint started.
    born: u64,
}

impl CheckpointMark {
    /// Excludes the table pointers from the counts, because storing the counts changes them.
    /// Loading the tables adds them again.
    pub(crate) fn leave_out(&mut self, tables: &[MapEntry]) {
        for entry in tables {
            self.replace_reference(*entry, MapEntry::ABSENT);
        }
    }

    /// Counts the replacement of a node pointer in the frozen map.
    pub(crate) fn replace_reference(&mut self, old: MapEntry, new: MapEntry) {
        if let Some(address) = new.address() {
            let index = slot(address.segment());
            if self.live.len() <= index {
                self.live.resize(index + 1, 0);
            }
            match self.live.get_mut(index) {
                Some(live) => *live += 1,
                None => panic!("S1: {address} has no count at the checkpoint"),
            }
        }
        if let Some(address) = old.address() {
            match self.live.get_mut(slot(address.segment())) {
                Some(live) if *live > 0 => *live -= 1,
                _ => panic!("S1: {address} has no counted reference at the checkpoint"),
            }
        }
    }
}

impl Segments {
    /// Segments that a recovery would have to replay: first row to replay, and segment record.
    pub(crate) fn recent(&self) -> Vec<(SegmentId, Row, SegmentRecord)> {
        let listed =
            self.recent.iter().filter_map(|id| Some((*id, self.get(*id).replay_from?, self.record(*id))));
        listed.collect()
    }

    /// Number of segments that [`Segments::recent`] returns.
    pub(crate) fn recent_count(&self) -> usize {
        self.recent.len()
    }

    /// Starts a checkpoint: captures the live counts, and the row of each segment from which a
    /// recovery based on this checkpoint would have to replay.
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
        let counted: u64 = self.live.iter().map(|live| u64::from(*live)).sum();
        assert_eq!(counted, self.live_blocks, "S1: the live blocks are the sum of all segments");
        CheckpointMark {
            checkpoint: self.checkpoints,
            live: self.live.clone(),
            from: from.collect(),
            born: self.newest,
        }
    }

    /// Applies the replay positions of `mark`, just before the checkpoint is published.
    pub(crate) fn end_checkpoint(&mut self, mark: &CheckpointMark) {
        assert_eq!(mark.checkpoint, self.checkpoints, "M3: checkpoints are made one at a time");
        self.stored_checkpoint = mark.checkpoint;
        for id in self.recent.clone() {
            let segment = self.get_mut(id);
            if segment.record.incarnation.get() > mark.born {
                continue;
            }
            segment.replay_from = mark.from.get(&id).copied();
            assert!(
                segment.replay_from.is_none_or(|from| from <= segment.append),
                "S5: the replay of segment {id} begins behind its end"
            );
            if segment.replay_from.is_none() {
                assert_eq!(segment.flushed, segment.append, "a checkpoint covers only flushed records");
                self.recent.remove(&id);
            }
        }
    }

    /// Removes the segments that were freed before the checkpoint at `mark`, which is now durable.
    /// Returns their zones, and zones that columns were moved away from before the checkpoint (S3).
    pub(crate) fn release(&mut self, mark: &CheckpointMark) -> Vec<(DriveIndex, ZoneIndex)> {
        let mut released = self.release_vacated(mark);
        for (index, place) in self.slots.iter_mut().enumerate() {
            let gone = place.as_ref().is_some_and(|segment| {
                let before =
                    matches!(segment.phase, SegmentPhase::Freed { checkpoints } if checkpoints < mark.checkpoint);
                before && segment.readers == 0
            });
            if gone && let Some(segment) = place.take() {
                assert_eq!(segment.in_flight, 0, "S2: a released segment has writes in flight");
                assert_eq!(segment.applied, segment.append, "S2: a released segment has unapplied records");
                assert!(self.freed > 0, "S3: more segments are released than were freed");
                assert_eq!(element(&self.live, index, "S1"), 0, "S2: a released segment has live blocks");
                released.extend(segment.record.columns.iter().filter_map(|column| column.zone));
                self.freed -= 1;
                self.vacant_hint = self.vacant_hint.min(index);
            }
        }
        released
    }

    /// Returns the segment table as stored by the checkpoint at `mark`.
    pub(crate) fn stored(&self, mark: &CheckpointMark) -> Vec<Option<SegmentRecord>> {
        let ids = 1..=narrow(self.slots.len(), "C5");
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
