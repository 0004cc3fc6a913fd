//! Cleaning where only checkpoints' own space is left: nothing can be moved, but the next checkpoint stores nodes anew, out of segments
//! in which few live.
//!
//! That takes space before it gives some back, and the segments that one checkpoint empties come back only with the next. So several are
//! emptied together, and only where both checkpoints certainly take fewer segments than that: else each round would use up a part of
//! what is left, until no checkpoint could be made at all (S4).

use std::ops::RangeInclusive;
use std::rc::Rc;

use format::SegmentId;

use super::Shard;
use crate::error::ErrorKind;
use crate::space::CHECKPOINT_OVERHEAD;

/// Nodes that are stored for each that is to leave its segment, at most: itself, and what is above it and lives elsewhere.
const STORED_PER_NODE: u64 = 2;

impl Shard {
    /// Has the next checkpoint empty segments of nodes, if that gains space.
    pub(super) async fn empty_segments_of_nodes(self: &Rc<Self>) {
        // It may bring space itself, and it decides what is dirty.
        self.checkpointed.until(|| (!self.log.is_checkpointing()).then_some(())).await;
        for victim in self.worth_emptying() {
            // One that began without the others would gain less than it takes.
            if self.log.is_checkpointing() || self.cleans_no_more() {
                return;
            }
            match self.clean_pinned(victim).await {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Closed) => return,
                Err(error) => {
                    tracing::warn!(shard = %self.identity.shard, segment = %victim, %error, "a segment of nodes was not emptied");
                }
            }
        }
    }

    /// The segments of nodes that give back most when they are emptied together; none if that takes as many.
    fn worth_emptying(&self) -> Vec<SegmentId> {
        let victims = self.rows.segments.borrow().victims_of_nodes();
        let live = victims.iter().map(|(_, live)| u64::from(*live));
        let map = self.ledger.map.borrow();
        let dirty = map.dirtied() as u64..=map.dirty_max() as u64;
        let count = worth_emptying(live, dirty, self.geometry.segment_payload());
        victims.into_iter().take(count).map(|(id, _)| id).collect()
    }
}

/// How many segments, of the first that there are, give back most when they are emptied together. `live` is how many nodes live in each,
/// `dirty` how many nodes are to be stored anyway, and how many may be.
fn worth_emptying(live: impl Iterator<Item = u64>, dirty: RangeInclusive<u64>, payload: u64) -> usize {
    let (mut nodes, mut best) = (*dirty.start(), (0, 0));
    for (count, live) in (1_u64..).zip(live) {
        nodes += STORED_PER_NODE * live;
        if nodes > *dirty.end() {
            break;
        }
        let taken = (nodes + 2 * CHECKPOINT_OVERHEAD).div_ceil(payload.max(1));
        let gain = count.saturating_sub(taken);
        if gain > best.0 {
            best = (gain, count);
        }
    }
    usize::try_from(best.1).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_nodes_are_emptied_only_for_a_certain_gain() {
        let worth = |live: &[u64], dirty, payload| worth_emptying(live.iter().copied(), dirty, payload);
        // Two checkpoints take what two almost empty segments give back; a third one is gained.
        assert_eq!(worth(&[1], 0..=100, 60), 0);
        assert_eq!(worth(&[1, 1], 0..=100, 60), 2);
        assert_eq!(worth(&[10, 10], 0..=100, 60), 0);
        assert_eq!(worth(&[10, 10, 10], 0..=100, 60), 3);
        // Half full ones never do: what is above their nodes is stored too.
        assert_eq!(worth(&[30; 50], 0..=10_000, 60), 0);
        // No more than a checkpoint may store, and not those that gain nothing more.
        assert_eq!(worth(&[10; 50], 0..=100, 60), 4);
        assert_eq!(worth(&[10; 50], 50..=100, 60), 0);
        assert_eq!(worth(&[5, 5, 5, 100, 100], 0..=10_000, 60), 2);
    }
}
