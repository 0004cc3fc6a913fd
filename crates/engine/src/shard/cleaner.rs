//! The cleaner (garbage collection): frees the zones of segments that are mostly garbage.
//!
//! It chooses a segment, and [`BlockMover`] moves its live blocks elsewhere. The zones are freed by
//! the checkpoint after the last block was moved. Free zones belong to all shards, but garbage
//! belongs to one: a shard cleans when its own clients write, and for another shard that finds
//! nothing to clean and asks before it refuses a write.
//!
//! The pace follows the debt of client writes (`GcPacer`), not the budget of the other
//! background jobs: writes wait for the cleaner. Must not know: the way blocks are moved.

use std::cell::Cell;
use std::rc::Rc;

use format::SegmentId;

use super::Shard;
use super::background::{BackgroundJob, StepOutcome};
use super::block_mover::BlockMover;
use crate::error::{ErrorKind, Result};
use crate::space::CHECKPOINT_OVERHEAD;

/// Net gain of cleaning, in segments, after which a checkpoint is requested that frees them for
/// waiting requests: in addition to the segments that the checkpoint itself fills, or it would use
/// up what was gained.
const GAIN_PER_CHECKPOINT: f32 = 0.5;
/// The highest cost of a checkpoint that the gain has to cover, in segments. A checkpoint of many
/// segments replaces as many old nodes, so that most of its cost returns with the next one.
const COST_MAX: f32 = 2.0;

/// The state of a shard's cleaner.
#[derive(Default)]
pub(crate) struct Cleaner {
    /// Segments with no live blocks except nodes and tables that the next checkpoint stores
    /// elsewhere.
    emptied: Cell<usize>,
    /// Segments gained for which no checkpoint was requested yet; a fraction.
    gained: Cell<f32>,
}

impl BackgroundJob for Cleaner {
    async fn wait_for_work(&self, shard: &Shard) {
        shard.log.pacer.wait_for_work().await;
    }

    async fn step(&self, shard: &Rc<Shard>) -> StepOutcome {
        if shard.has_ended() {
            return StepOutcome::Ended;
        }
        if self.clean_next(shard).await { StepOutcome::More } else { StepOutcome::Idle }
    }
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
    /// it justifies a checkpoint that fills `cost` segments.
    pub(super) fn count_gain(&self, share: f32, cost: f32) -> bool {
        assert!((0.0..=1.0).contains(&share), "S1: cleaning a segment gains {share} of it");
        let gained = self.gained.get() + share;
        let is_enough = gained >= GAIN_PER_CHECKPOINT + cost.min(COST_MAX);
        self.gained.set(if is_enough { 0.0 } else { gained });
        is_enough
    }

    /// Cleans the segment with the best ratio of gain to cost. Returns false if there is nothing to
    /// do, or nothing can be done now.
    async fn clean_next(&self, shard: &Rc<Shard>) -> bool {
        if shard.log.pacer.max_live_share(self.freeable_segments(shard)).is_some() {
            // Wait for debt first: segments lose live blocks meanwhile, and a better victim may
            // appear.
            shard.log.pacer.wait_for_debt_or_urgency(|| shard.has_ended()).await;
            if shard.has_ended() {
                return true;
            }
        }
        if shard.log.pacer.space.only_checkpoint_reserve_left() {
            return shard.compaction.compact(shard).await;
        }
        let limit = shard.log.pacer.max_live_share(self.freeable_segments(shard));
        let Some((victim, share)) = limit.and_then(|limit| shard.rows.segments.borrow_mut().victim(limit))
        else {
            return self.note_idle(shard, self.freeable_segments(shard) > 0);
        };
        shard.log.pacer.set_victim_share(share);
        match self.clean_pinned(shard, victim).await {
            Ok(()) if !self.count_gain(1.0 - share, checkpoint_cost(shard)) => true,
            Ok(()) => {
                shard.log.cleaning_ended(true);
                true
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => {
                // The moves so far may have emptied a segment; a checkpoint would free it.
                shard.log.on_cleaner_idle(0);
                let pending_free = shard.rows.segments.borrow().freed_count() + self.emptied();
                shard.log.cleaning_ended(pending_free > 0);
                false
            }
            Err(error) if error.kind() == ErrorKind::Closed => false,
            Err(error) => {
                tracing::warn!(shard = %shard.identity.shard, segment = %victim, %error, "segment not cleaned");
                true
            }
        }
    }

    /// Notes that there is nothing to clean now; `helps` is true if a checkpoint would help waiting
    /// requests.
    pub(super) fn note_idle(&self, shard: &Shard, helps: bool) -> bool {
        shard.log.on_cleaner_idle(shard.rows.segments.borrow().freed_count());
        shard.log.cleaning_ended(helps);
        false
    }

    /// Returns the number of segments that the next checkpoint frees.
    pub(super) fn freeable_segments(&self, shard: &Shard) -> usize {
        let mut segments = shard.rows.segments.borrow_mut();
        segments.free_emptied();
        segments.freed_count() + self.emptied()
    }

    /// Moves the live blocks of a segment.
    pub(super) async fn clean_pinned(&self, shard: &Rc<Shard>, victim: SegmentId) -> Result<()> {
        let cleaned = {
            let _pin = shard.rows.pin(victim);
            BlockMover::new(shard).clean(victim).await
        };
        let mut segments = shard.rows.segments.borrow_mut();
        segments.cleaned(victim);
        segments.free_emptied();
        cleaned
    }

    /// Cleans as if a request of this shard waited for space, and frees the gain with a checkpoint.
    /// Returns false if nothing was gained.
    pub(crate) async fn clean_for_others(&self, shard: &Rc<Shard>) -> bool {
        let ended = || shard.has_ended();
        if ended() {
            return false;
        }
        shard.log.pacer.start_helping();
        if !shard.log.pacer.wait_for_help(ended).await {
            return false;
        }
        // The shard's own task makes the checkpoint, so that none is in progress here once the
        // shard has stopped.
        let (made, ended_before) = (shard.checkpointer.completed(), shard.checkpointer.ended());
        shard.log.checkpoints.request();
        let is_over = || shard.checkpointer.ended() != ended_before || ended();
        shard.checkpointer.until(is_over).await;
        shard.checkpointer.completed() != made
    }
}

/// Returns the number of segments that a checkpoint would fill now; a fraction.
#[allow(clippy::cast_precision_loss)]
fn checkpoint_cost(shard: &Shard) -> f32 {
    let blocks = shard.ledger.map.borrow().dirty_count() as u64 + CHECKPOINT_OVERHEAD;
    blocks as f32 / shard.geometry.segment_payload() as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_requested_for_half_a_segment_more_than_it_costs() {
        for (cost, cleanings) in [(0.0, 2), (0.5, 4), (2.0, 10), (100.0, 10)] {
            let cleaner = Cleaner::default();
            for _ in 0..2 {
                let needed = (1..).find(|_| cleaner.count_gain(0.25, cost));
                assert_eq!(needed, Some(cleanings), "{cost}");
            }
        }
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
