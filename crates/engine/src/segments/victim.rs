//! Victim selection for the cleaner, by live data and the rate at which it dies.
//!
//! Must not know: the cleaning itself, and when it runs.

use format::SegmentId;

use super::{CHUNK_BLOCKS, SegmentPhase, Segments, slot};
use crate::invariant::{narrow, to_index};

/// Number of sealed segments by fill level: empty, up to 10 %, up to 20 %, and so on up to 100 %.
pub type FillHistogram = [u64; 11];

impl Segments {
    /// Takes over the death rate of the source segment for a moved block. The rate is that from
    /// before the move, which itself removes blocks from the source.
    pub(crate) fn inherit_death_rate(&mut self, from: SegmentId, to: SegmentId) {
        let rate = self.get(from).deaths.last().unwrap_or(self.mean_death_rate());
        self.get_mut(to).deaths.inherit(rate);
    }

    /// Updates and returns the death rate of a segment.
    pub(super) fn observe_deaths(&mut self, id: SegmentId) -> f32 {
        let (time, live, payload) = (self.drops, self.live(id), self.geometry.segment_payload());
        let mean = self.mean_death_rate();
        self.get_mut(id).deaths.observe(time, live, payload, mean)
    }

    /// Returns the death rate of all blocks of the shard: one of them per unit of time.
    #[allow(clippy::cast_precision_loss)]
    fn mean_death_rate(&self) -> f32 {
        1.0 / self.live_blocks.max(1) as f32
    }

    /// Returns the victim with the largest benefit. The second value is the fraction of the gained
    /// space that the live blocks would use elsewhere; it is at most `max_share`.
    pub(crate) fn victim(&mut self, max_share: f32) -> Option<(SegmentId, f32)> {
        let mut best: Option<(SegmentId, f32, f32)> = None;
        for index in 0..self.slots.len() {
            let id = SegmentId::new(narrow(index + 1, "C5"));
            let Some(share) = self.live_share(id) else { continue };
            // Segments above the limit are observed too, or their estimates would include the time
            // when their data was new.
            let benefit = benefit(share, self.observe_deaths(id));
            if share <= max_share && best.is_none_or(|(.., highest)| benefit >= highest) {
                best = Some((id, share, benefit));
            }
        }
        best.map(|(id, share, _)| (id, share))
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

/// Benefit of cleaning a segment now: the space gained, divided by the cost of moving its live
/// blocks and by the square root of the rate at which they die (docs/decisions.md).
fn benefit(share: f32, death_rate: f32) -> f32 {
    // Reading the headers has a cost even if no block is live.
    (1.0 - share) / ((0.05 + share) * death_rate.sqrt())
}

#[cfg(test)]
#[path = "victim_tests.rs"]
mod tests;
