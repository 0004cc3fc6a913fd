//! Which segment is most worth cleaning: how much of it lives, and for how long that has been left alone.
//!
//! Must not know: how a segment is cleaned, when it is time to.

use format::SegmentId;

use super::{CHUNK_BLOCKS, SegmentPhase, Segments, slot};

/// Sealed segments by how much of them lives: none of it, up to a tenth, and so on up to all.
pub type FillHistogram = [u64; 11];

/// When the data of a segment was written, in incarnations of segments: for data that was moved, the mean of where it
/// came from.
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
    /// A block was moved from one segment to another, which is no younger for it.
    pub(crate) fn inherit_age(&mut self, from: SegmentId, to: SegmentId) {
        let source = self.get(from);
        let born = source.age.mean(source.record.incarnation.get());
        self.get_mut(to).age.add(born);
    }

    /// The segment that is most worth cleaning, by cost and benefit (Rosenblum and Ousterhout, 1992): what it gives back,
    /// weighted with how long its data has been left alone, over what moving its live blocks costs. None whose live
    /// blocks would take more than `worth` of the zones that it gives back. With what they would take.
    pub(crate) fn victim(&self, worth: f32) -> Option<(SegmentId, f32)> {
        let newest = self.newest;
        let scored = self.ids().filter_map(|id| {
            let share = self.live_share(id).filter(|share| *share <= worth)?;
            let segment = self.get(id);
            let age = newest - segment.age.mean(segment.record.incarnation.get()).min(newest) + 1;
            Some((id, share, benefit(share, age)))
        });
        scored.max_by(|(.., a), (.., b)| a.total_cmp(b)).map(|(id, share, _)| (id, share))
    }

    /// All segments that may be cleaned, those in which least lives first.
    pub(crate) fn victims(&self) -> Vec<SegmentId> {
        let mut victims: Vec<_> = self.ids().filter(|id| self.is_cleanable(*id)).collect();
        victims.sort_unstable_by_key(|id| self.live(*id));
        victims
    }

    /// True if a segment is there, ended, and not to be emptied by the next checkpoint anyway.
    pub(crate) fn is_cleanable(&self, id: SegmentId) -> bool {
        let Some(Some(segment)) = self.slots.get(slot(id)) else { return false };
        let landed = segment.in_flight == 0 && segment.applied == segment.append;
        let again = segment.cleaned.is_none_or(|checkpoint| self.checkpoints > checkpoint + 1);
        segment.phase == SegmentPhase::Sealed && landed && self.live(id) > 0 && again
    }

    /// What the live blocks of a segment that may be cleaned would take elsewhere, headers and padding included, as a
    /// share of its zones.
    #[allow(clippy::cast_precision_loss)]
    fn live_share(&self, id: SegmentId) -> Option<f32> {
        if !self.is_cleanable(id) {
            return None;
        }
        let (segment, live) = (self.get(id), self.live(id));
        let scheme = self.geometry.scheme;
        // A header for each chunk, with which it fills whole rows; the last record ends with its row.
        let cells = (live + live.div_ceil(CHUNK_BLOCKS) + u32::from(scheme.data())) as f32;
        let elsewhere =
            cells * f32::from(scheme.width()) / (f32::from(scheme.data()) * self.geometry.rows() as f32);
        Some(elsewhere / f32::from(segment.record.scheme.width()))
    }

    /// How many sealed segments are how full of what lives, by tenths of what they may hold: empty ones that wait for a checkpoint first,
    /// then up to a tenth, and so on.
    pub(crate) fn fill_histogram(&self) -> FillHistogram {
        let mut counts = FillHistogram::default();
        let payload = self.geometry.segment_payload().max(1);
        let sealed = self.ids().filter(|id| self.get(*id).phase != SegmentPhase::Open);
        for id in sealed {
            let tenth = (u64::from(self.live(id)) * 10).div_ceil(payload);
            let at = usize::try_from(tenth).unwrap_or(usize::MAX).min(counts.len() - 1);
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
        counts
    }

    /// The cleaner has moved what it could; the rest goes with the next checkpoint.
    pub(crate) fn cleaned(&mut self, id: SegmentId) {
        let checkpoints = self.checkpoints;
        self.get_mut(id).cleaned = Some(checkpoints);
    }
}

/// How much age counts. With 1, as in the paper, or 1/2, uniformly overwritten data is moved too often; with 1/4 or less, data of which a part
/// is hot.
const AGE_EXPONENT: f32 = 0.375;

/// How much cleaning a segment is worth.
#[allow(clippy::cast_precision_loss)]
fn benefit(share: f32, age: u64) -> f32 {
    // Reading the headers costs something even where nothing lives.
    (1.0 - share) * (age as f32).powf(AGE_EXPONENT) / (0.05 + share)
}
