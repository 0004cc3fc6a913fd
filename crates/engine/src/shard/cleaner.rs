//! The state of a shard's cleaner: the gain that no checkpoint has freed yet. Must not know: the
//! choice of segments, and the way they are cleaned.

use std::cell::Cell;

/// Net gain of cleaning, in segments, after which a checkpoint is requested that frees them for
/// waiting requests.
const GAIN_PER_CHECKPOINT: f32 = 0.5;

/// The state of a shard's cleaner.
#[derive(Default)]
pub(super) struct Cleaner {
    /// Segments with no live blocks except nodes and tables that the next checkpoint stores
    /// elsewhere.
    emptied: Cell<usize>,
    /// Segments gained for which no checkpoint was requested yet; a fraction.
    gained: Cell<f32>,
}

impl Cleaner {
    /// Returns the number of segments that the next checkpoint empties.
    pub(super) fn emptied(&self) -> usize {
        self.emptied.get()
    }

    /// Counts a segment that the next checkpoint empties.
    pub(super) fn count_emptied(&self) {
        self.emptied.set(self.emptied.get() + 1);
    }

    /// Notes that a checkpoint begins, which stores the nodes and tables of emptied segments.
    pub(super) fn checkpoint_begins(&self) {
        self.emptied.set(0);
    }

    /// Adds the gain of cleaning a segment, as a share of it. Returns true, and resets the sum, if
    /// it justifies a checkpoint.
    pub(super) fn count_gain(&self, share: f32) -> bool {
        assert!((0.0..=1.0).contains(&share), "S1: cleaning a segment gains {share} of it");
        let gained = self.gained.get() + share;
        let is_enough = gained >= GAIN_PER_CHECKPOINT;
        self.gained.set(if is_enough { 0.0 } else { gained });
        is_enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_worth_half_a_segment() {
        let cleaner = Cleaner::default();
        let enough: Vec<bool> = (0..6).map(|_| cleaner.count_gain(0.25)).collect();
        assert_eq!(enough, [false, true, false, true, false, true]);
    }

    #[test]
    fn emptied_segments_count_until_a_checkpoint_begins() {
        let cleaner = Cleaner::default();
        cleaner.count_emptied();
        cleaner.count_emptied();
        assert_eq!(cleaner.emptied(), 2);
        cleaner.checkpoint_begins();
        assert_eq!(cleaner.emptied(), 0);
    }
}
