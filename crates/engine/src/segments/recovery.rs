//! Recovery support of the segment table: restoring segments, truncating them at the end of the
//! log, and tracking the replay.
//!
//! Must not know: how the log is read.

use format::{DriveIndex, Row, SegmentId, SegmentRecord, SegmentState};

use super::death_rate::DeathRate;
use super::{AllocPriority, Segment, SegmentPhase, Segments, slot};

impl Segments {
    /// Restores a sealed segment from its stored record. `replay_from` is the row listed in the
    /// superblock, if any. Rows before it count as applied; later ones are reported by
    /// [`Segments::replayed`].
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
            deaths: DeathRate::default(),
            cleaned: None,
        };
        self.put(id, segment);
    }

    /// Sets a live count to the value stored by a checkpoint.
    pub(crate) fn restore_live(&mut self, id: SegmentId, count: u32) {
        if let Some(live) = self.live.get_mut(slot(id)) {
            self.live_blocks = self.live_blocks + u64::from(count) - u64::from(*live);
            *live = count;
        }
    }

    /// Marks the record that ends before `end` as replayed.
    pub(crate) fn replayed(&mut self, id: SegmentId, end: Row) {
        let segment = self.get_mut(id);
        segment.applied = segment.applied.max(end);
    }

    /// Sets the end row found by the recovery. Marks rows from `from` on as missing on every drive
    /// that is not online, because that drive did not take part in the recovery.
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
            "only a recovery truncates segments"
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

    /// Starts the replay of the segments in the log. Records written until it ends are newer than
    /// all of the log. No checkpoint during the replay may omit them, because a recovery stops at
    /// the first gap.
    pub(crate) fn begin_replay(&mut self) {
        self.replaying = Some(self.newest);
    }

    /// Ends the replay and queues every segment for [`Segments::free_emptied`].
    pub(crate) fn end_replay(&mut self) {
        self.replaying = None;
        let ids: Vec<_> = self.ids().collect();
        self.emptied.extend(ids);
    }

    /// Returns true for a segment that was opened during the replay.
    pub(super) fn is_ahead(&self, record: &SegmentRecord) -> bool {
        self.replaying.is_some_and(|newest| record.incarnation.get() > newest)
    }
}
