//! Compaction: cleaning where only checkpoints' own space is left.
//!
//! Nothing but checkpoints takes space there, so that none would ever come back if they were all that was done. But what is moved, and the
//! two checkpoints after which its segments are free, take space before they give some. So it is found out beforehand what emptying
//! several segments together takes, and done only if that is there, and gives back more: else each round would use up a part of what is
//! left, until no checkpoint could be made at all (S4). The next checkpoint waits for all of it, because one that came in between would
//! take its own part and gain less.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use format::SegmentId;
use reactor::{Reactor, WaitList};

use super::clean::Nodes;
use super::headers::HeaderReader;
use super::{LEAF_BLOCKS, Shard};
use crate::error::{ErrorKind, Result};
use crate::map::MissingNode;
use crate::space::CHECKPOINT_OVERHEAD;

/// Whether a shard compacts.
#[derive(Default)]
pub(super) struct Compaction {
    running: Cell<bool>,
    /// What there was when nothing could be gained: without a change nothing can.
    in_vain: Cell<Option<SpaceSnapshot>>,
    ended: WaitList,
}

/// Live blocks, free segments, and nodes to be stored.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SpaceSnapshot(u64, u64, usize);

impl Compaction {
    pub(super) fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Who waits for its end looks whether he still has to.
    pub(super) fn retry_waiting(&self) {
        self.ended.wake_all();
    }
}

/// Segments that are to be emptied together, and what that takes.
#[derive(Default)]
struct Plan {
    victims: Vec<SegmentId>,
    /// Zones that they give back.
    zones: u64,
    /// Blocks to be written for what is moved, headers and ends of rows included.
    moved: u64,
    /// Nodes that the next checkpoint stores.
    nodes: HashSet<MissingNode>,
}

/// What there is for it.
struct CompactionBudget {
    /// Segments that may be opened.
    free: u64,
    /// What is left in the open segment of moved data, in blocks.
    room: u64,
    /// What a segment takes, in blocks, and in nodes.
    segment: u64,
    payload: u64,
    /// Zones of a segment.
    width: u64,
    /// Nodes that the next checkpoint may store.
    nodes_max: u64,
}

impl Shard {
    /// Waits for the end of a compaction that is under way, unless the map has no room until the next checkpoint.
    pub(super) async fn compacted(&self) {
        let goes_on = || self.compaction.is_running() && !self.ledger.map.borrow().is_over_budget();
        self.compaction.ended.until(|| (!goes_on()).then_some(())).await;
    }

    /// Gains space where only checkpoints' own is left. False if there is nothing to be gained, or not now.
    pub(super) async fn compact_or_rest(self: &Rc<Self>) -> bool {
        if self.log.is_checkpointing() {
            // It may bring space itself, and it decides what is to be stored.
            self.checkpointed.until(|| (!self.log.is_checkpointing()).then_some(())).await;
            return true;
        }
        self.compaction.running.set(true);
        let planned = self.plan_compaction().await;
        self.log.set_compacting(true);
        self.empty(&planned).await;
        self.log.set_compacting(false);
        self.compaction.running.set(false);
        self.compaction.retry_waiting();
        self.rests(self.is_worth_a_checkpoint())
    }

    /// True if the next checkpoint gives back something, or makes room for another compaction: what is to be stored is stored once.
    fn is_worth_a_checkpoint(&self) -> bool {
        let map = self.ledger.map.borrow();
        self.coming() > 0 || map.dirtied() > map.dirty_max() / 4
    }

    /// Empties segments, or has the next checkpoint do so, unless one comes in between.
    async fn empty(self: &Rc<Self>, planned: &[SegmentId]) {
        let ended = self.checkpoints_ended.get();
        let overtaken = || self.log.is_checkpointing() || self.checkpoints_ended.get() != ended;
        for victim in planned {
            if overtaken() || self.must_stop_cleaning() || !self.rows.segments.borrow().is_cleanable(*victim)
            {
                return;
            }
            match self.clean_pinned(*victim).await {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Closed) => return,
                Err(error) => {
                    tracing::warn!(shard = %self.identity.shard, segment = %victim, %error, "a segment was not emptied");
                }
            }
        }
    }

    /// The segments that give back most when they are emptied together; none if that takes as many, or more than there are.
    async fn plan_compaction(&self) -> Vec<SegmentId> {
        let (ground, victims, found) = self.ground();
        if self.compaction.in_vain.get() == Some(found) {
            return Vec::new();
        }
        let mut plan = Plan { nodes: self.ledger.map.borrow().nodes_to_store().collect(), ..Plan::default() };
        let mut best = (0, 0);
        for victim in victims {
            if self.log.is_checkpointing() || self.must_stop_cleaning() {
                return Vec::new();
            }
            match self.survey(victim, &mut plan).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::debug!(shard = %self.identity.shard, segment = %victim, %error, "a segment could not be looked at");
                    break;
                }
            }
            match ground.gain(&plan) {
                Some(gain) if gain > best.0 => best = (gain, plan.victims.len()),
                Some(_) => {}
                None => break,
            }
        }
        let (gain, count) = best;
        self.compaction.in_vain.set((gain == 0).then_some(found));
        plan.victims.truncate(count);
        tracing::debug!(shard = %self.identity.shard, free = ground.free, zones = gain, segments = count, "compacting");
        plan.victims
    }

    fn ground(&self) -> (CompactionBudget, Vec<SegmentId>, SpaceSnapshot) {
        let segments = self.rows.segments.borrow();
        let map = self.ledger.map.borrow();
        let ground = CompactionBudget {
            free: self.log.pacer.space.shard_share(),
            room: self.log.room_for_moves(),
            segment: self.geometry.segment_blocks(),
            payload: self.geometry.segment_payload().max(1),
            width: u64::from(self.geometry.scheme.width()),
            // Some of what may become dirty until then is others'.
            nodes_max: map.dirty_max() as u64 * 3 / 4,
        };
        let found = SpaceSnapshot(segments.live_blocks(), ground.free, map.dirtied());
        (ground, segments.victims(), found)
    }

    /// Adds a segment to a plan.
    async fn survey(&self, victim: SegmentId, plan: &mut Plan) -> Result<()> {
        if !self.rows.segments.borrow().is_cleanable(victim) {
            return Ok(());
        }
        let pin = self.rows.pin(victim);
        let record = self.rows.segments.borrow().record(victim);
        let zones = record.columns.iter().filter(|column| column.zone.is_some()).count();
        let mut headers = HeaderReader::new(&self.rows, &self.identity, victim, &record);
        let blocks = self.look_at(&mut headers, plan).await?;
        drop(pin);
        // Each chunk with a header, and to the end of its row.
        let chunks = blocks.div_ceil(self.chunk_blocks() as u64);
        plan.moved += blocks + chunks * (1 + u64::from(self.geometry.scheme.data()));
        plan.zones += zones as u64;
        plan.victims.push(victim);
        Ok(())
    }

    /// Adds the nodes that are stored when a segment is emptied; gives how many blocks are moved.
    async fn look_at(&self, headers: &mut HeaderReader<'_>, plan: &mut Plan) -> Result<u64> {
        let (mut blocks, mut nodes) = (0, Nodes::new());
        while let Some(live) = self.next_live(headers, &mut nodes).await? {
            Reactor::current().yield_now().await;
            let map = self.ledger.map.borrow();
            for live in live {
                let count = live.crcs.len() as u64;
                let leaves = live.block / LEAF_BLOCKS..=(live.block + count - 1) / LEAF_BLOCKS;
                let leaf = |index| MissingNode { layer: live.layer, level: 0, index };
                plan.nodes.extend(leaves.flat_map(|index| map.with_ancestors(leaf(index))));
                blocks += count;
            }
        }
        for (node, place) in nodes {
            // Table blocks are stored with each checkpoint.
            let Some(node) = node else { continue };
            if self.walk(|map| map.is_stored_at(node, place)).await? {
                plan.nodes.extend(self.ledger.map.borrow().with_ancestors(node));
            }
        }
        Ok(blocks)
    }
}

impl CompactionBudget {
    /// Zones that are gained by a plan; `None` if it takes more than there is.
    fn gain(&self, plan: &Plan) -> Option<u64> {
        let nodes = plan.nodes.len() as u64;
        let moves = plan.moved.saturating_sub(self.room).div_ceil(self.segment);
        // What the first checkpoint empties is free after the second.
        let checkpoints = (nodes + 2 * CHECKPOINT_OVERHEAD).div_ceil(self.payload);
        let taken = moves + checkpoints;
        (nodes <= self.nodes_max && taken < self.free).then(|| plan.zones.saturating_sub(taken * self.width))
    }
}

#[cfg(test)]
mod tests {
    use format::LayerId;

    use super::*;

    const BUDGET: CompactionBudget =
        CompactionBudget { free: 8, room: 0, segment: 64, payload: 60, width: 5, nodes_max: 100 };

    fn plan(segments: u64, moved: u64, nodes: u64) -> Plan {
        let node = |index| MissingNode { layer: LayerId::new(7), level: 0, index };
        Plan { victims: Vec::new(), zones: segments * 5, moved, nodes: (0..nodes).map(node).collect() }
    }

    #[test]
    fn what_is_gained_is_what_comes_back_less_moves_and_two_checkpoints() {
        assert_eq!(BUDGET.gain(&plan(1, 0, 1)), Some(0));
        assert_eq!(BUDGET.gain(&plan(2, 0, 20)), Some(5));
        assert_eq!(BUDGET.gain(&plan(2, 0, 21)), Some(0));
        assert_eq!(BUDGET.gain(&plan(2, 1, 20)), Some(0));
        assert_eq!(BUDGET.gain(&plan(3, 64, 20)), Some(5));
        assert_eq!(BUDGET.gain(&plan(3, 65, 20)), Some(0));
        assert_eq!(CompactionBudget { room: 1, ..BUDGET }.gain(&plan(3, 65, 20)), Some(5));
        // A mirror of two columns gives back two zones.
        assert_eq!(BUDGET.gain(&Plan { zones: 3 * 2, ..plan(3, 0, 20) }), Some(1));
    }

    #[test]
    fn no_more_is_taken_than_there_is() {
        assert_eq!(BUDGET.gain(&plan(9, 0, 100)), Some(6 * 5));
        assert_eq!(BUDGET.gain(&plan(9, 0, 101)), None);
        assert_eq!(BUDGET.gain(&plan(9, 4 * 64, 100)), Some(2 * 5));
        assert_eq!(BUDGET.gain(&plan(9, 5 * 64, 100)), None);
    }
}
