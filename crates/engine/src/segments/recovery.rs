//! Segments as a recovery finds them: put back as they were stored, ended where the log ends, counted anew by the replay.
//!
//! Must not know: how the log is read.

use format::{DriveIndex, Row, SegmentId, SegmentRecord, SegmentState};

use super::victim::Age;
use super::{AllocPriority, Segment, SegmentPhase, Segments, slot};

impl Segments {
    /// Puts a sealed segment back as it was stored. `replay_from` as in the superblock, if it is still listed there.
    /// What lies before that row counts as applied; the rest is told by [`Segments::replayed`].
    pub(crate) fn restore(&mut self, id: SegmentId, mut record: SegmentRecord, replay_from: Option<Row>) {
        record.state = SegmentState::Sealed;
        let end = Row::new(record.rows);
        let segment = Segment {
            record,
            phase: SegmentPhase::Sealed,
            in_flight: 0,
            append: end,
            applied: replay_from.unwrap_or(end),
            flushed: end,
            replay_from,
            level: AllocPriority::User,
            readers: 0,
            age: Age::default(),
            cleaned: None,
            damaged: 0,
        };
        self.put(id, segment);
    }

    /// Sets a live count as a checkpoint stored it.
    pub(crate) fn restore_live(&mut self, id: SegmentId, count: u32) {
        if let Some(live) = self.live.get_mut(slot(id)) {
            self.live_blocks = self.live_blocks + u64::from(count) - u64::from(*live);
            *live = count;
        }
    }

    /// A recovery has replayed the record that ends before `end`.
    pub(crate) fn replayed(&mut self, id: SegmentId, end: Row) {
        let segment = self.get_mut(id);
        segment.applied = segment.applied.max(end);
    }

    /// Sets where a recovery found a segment to end, and takes the rows from `from` on as missing in every column
    /// whose drive is not in use: it did not take part in the recovery.
    pub(crate) fn truncate(
        &mut self,
        id: SegmentId,
        from: Row,
        end: Row,
        in_use: impl Fn(DriveIndex) -> bool,
    ) {
        let segment = self.get_mut(id);
        assert!(
            segment.phase == SegmentPhase::Sealed && segment.in_flight == 0,
            "only a recovery cuts segments"
        );
        segment.record.rows = end.get();
        (segment.append, segment.flushed) = (end, end);
        segment.applied = segment.applied.min(end);
        for column in &mut segment.record.columns {
            if column.zone.is_some_and(|(drive, _)| !in_use(drive)) {
                column.missing_from = column.missing_from.min(from);
            }
        }
        self.update_locations(id);
    }

    /// The replay of what was found in the segments begins. What is written until it ends comes after all of that, so no
    /// checkpoint on the way may leave it out: a recovery takes records up to the first gap.
    pub(crate) fn begin_replay(&mut self) {
        self.replaying = Some(self.newest);
    }

    /// The replay is over; every segment is to be looked at for [`Segments::free_emptied`], since nothing told of empty ones.
    pub(crate) fn end_replay(&mut self) {
        self.replaying = None;
        let ids: Vec<_> = self.ids().collect();
        self.emptied.extend(ids);
    }

    /// True for a segment that was opened while the log is being replayed.
    pub(super) fn is_ahead(&self, record: &SegmentRecord) -> bool {
        self.replaying.is_some_and(|newest| record.incarnation.get() > newest)
    }
}
