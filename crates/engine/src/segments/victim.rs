//! Victim selection for the cleaner, by live data and age.
//!
//! Must not know: the cleaning itself, and when it runs.

use format::SegmentId;

use super::{CHUNK_BLOCKS, SegmentPhase, Segments, slot};

use crate::invariant::to_index;

/// Number of sealed segments by fill level: empty, up to 10 %, up to 20 %, and so on up to 100 %.
pub type FillHistogram = [u64; 11];

/// Age of a segment's data, in segment incarnations: the mean of the source segments for moved
/// data.
#[derive(Clone, Copy, Default)]
pub(super) struct Age {
    moved: u64,
    born: u64,
}

impl Age {
    fn add(&mut self, born: u64) {
        self.moved += 1;
        self.born += born;
    }

    fn mean(&self, own: u64) -> u64 {
        self.born.checked_div(self.moved).unwrap_or(own)
    }
}

impl Segments {
    /// Takes over the age of the source segment for a moved block.
    pub(crate) fn inherit_age(&mut self, from: SegmentId, to: SegmentId) {
        let source = self.get(from);
        let born = source.age.mean(source.record.incarnation.get());
        self.get_mut(to).age.add(born);
    }

    /// Returns the best victim by cost-benefit (Rosenblum and Ousterhout, 1992): the space gained,
    /// weighted by the age of the data, divided by the cost of moving its live blocks. The second
    /// value is the fraction of the gained space that the live blocks would use elsewhere; it is at
    /// most `max_share`.
    pub(crate) fn victim(&self, max_share: f32) -> Option<(SegmentId, f32)> {
        let newest = self.newest;
        let scored = self.ids().filter_map(|id| {
            let share = self.live_share(id).filter(|share| *share <= max_share)?;
            let segment = self.get(id);
            let age = newest - segment.age.mean(segment.record.incarnation.get()).min(newest) + 1;
            Some((id, share, benefit(share, age)))
        });
        scored.max_by(|(.., a), (.., b)| a.total_cmp(b)).map(|(id, share, _)| (id, share))
    }

    /// Returns all cleanable segments, those with the fewest live blocks first.
    pub(crate) fn victims(&self) -> Vec<SegmentId> {
        let mut victims: Vec<_> = self.ids().filter(|id| self.is_cleanable(*id)).collect();
        victims.sort_unstable_by_key(|id| self.live(*id));
        victims
    }

    /// Returns true if a segment is sealed and fully applied, has live blocks, and was not cleaned
    /// since the last stored checkpoint began.
    pub(crate) fn is_cleanable(&self, id: SegmentId) -> bool {
        let Some(Some(segment)) = self.slots.get(slot(id)) else { return false };
        let landed = segment.in_flight == 0 && segment.applied == segment.append;
        // A failed checkpoint moved no nodes: to clean the segment again would gain nothing.
        let again = segment.cleaned.is_none_or(|checkpoint| self.stored_checkpoint > checkpoint);
        segment.phase == SegmentPhase::Sealed && landed && self.live(id) > 0 && again
    }

    /// Space that the live blocks of a cleanable segment would use elsewhere, with headers and
    /// padding, as a fraction of the segment's zones.
    #[allow(clippy::cast_precision_loss)]
    fn live_share(&self, id: SegmentId) -> Option<f32> {
        if !self.is_cleanable(id) {
            return None;
        }
        let (segment, live) = (self.get(id), self.live(id));
        let scheme = self.geometry.scheme;
        // One header per chunk, and whole rows: the last record is padded to the end of its row.
        let cells = (live + live.div_ceil(CHUNK_BLOCKS) + u32::from(scheme.data())) as f32;
        let elsewhere =
            cells * f32::from(scheme.width()) / (f32::from(scheme.data()) * self.geometry.rows() as f32);
        Some(elsewhere / f32::from(segment.record.scheme.width()))
    }

    /// Counts the sealed segments by fill level, in tenths of their payload. The first counter is
    /// for empty segments that wait for a checkpoint.
    pub(crate) fn fill_histogram(&self) -> FillHistogram {
        let mut counts = FillHistogram::default();
        let payload = self.geometry.segment_payload().max(1);
        let sealed = self.ids().filter(|id| self.get(*id).phase != SegmentPhase::Open);
        for id in sealed {
            let tenth = (u64::from(self.live(id)) * 10).div_ceil(payload);
            let at = to_index(tenth).min(counts.len() - 1);
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
        counts
    }

    /// Records that the cleaner has moved the live data; the next checkpoint moves the remaining
    /// nodes.
    pub(crate) fn cleaned(&mut self, id: SegmentId) {
        let checkpoints = self.checkpoints;
        self.get_mut(id).cleaned = Some(checkpoints);
    }
}

/// Weight of the age. With 1, as in the paper, or 1/2, uniformly overwritten data is moved too
/// often; with 1/4 or less, the same holds for data with a hot part.
const AGE_EXPONENT: f32 = 0.375;

/// Benefit of cleaning a segment.
#[allow(clippy::cast_precision_loss)]
fn benefit(share: f32, age: u64) -> f32 {
    // Reading the headers has a cost even if no block is live.
    (1.0 - share) * (age as f32).powf(AGE_EXPONENT) / (0.05 + share)
}
