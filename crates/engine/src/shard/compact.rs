//! Compaction: cleaning when only the checkpoint reserve is left.
//!
//! Only checkpoints may allocate then, and checkpoints alone never free a segment. Moving live
//! blocks, and the two checkpoints after which the emptied segments are free, take space before
//! they gain any. So the cost of emptying several segments together is computed first, and paid
//! only if the space is there and the gain is larger: otherwise each round would use up a part of
//! the reserve until no checkpoint could be made (S4). The next checkpoint waits for the whole
//! compaction, because one in between would take its own share and gain less.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use format::SegmentId;
use reactor::{Reactor, WaitList};

use super::block_mover::{BlockMover, MetadataCells};
use super::compaction_plan::{CompactionBudget, Plan, VictimCost, zones_for_new_segments};
use super::headers::HeaderReader;
use super::{LEAF_BLOCKS, Shard};
use crate::error::{ErrorKind, Result};
use crate::map::MissingNode;
use crate::zones::{FreeSpace, SEGMENT_PARTS};

/// Number of segments that a plan leaves out before it is complete: each costs reads of its
/// headers, and those that follow are costlier as a rule.
const LEFT_OUT_MAX: u32 = 32;

/// The compaction state of a shard.
#[derive(Default)]
pub(super) struct Compaction {
    running: Cell<bool>,
    /// Compactions that had segments to empty.
    count: Cell<u64>,
    /// The space when no compaction could gain any: until it changes, none can.
    without_gain: RefCell<Option<SpaceSnapshot>>,
    ended: WaitList,
}

/// The state of the space that plans depend on.
#[derive(PartialEq, Eq)]
struct SpaceSnapshot {
    /// Live blocks.
    live: u64,
    /// Segments that may be opened.
    free: u64,
    /// Zones that new segments can take.
    free_zones: FreeSpace,
    /// Nodes that were made dirty.
    nodes: usize,
}

impl Compaction {
    pub(super) fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Returns the number of compactions that had segments to empty.
    pub(super) fn count(&self) -> u64 {
        self.count.get()
    }

    /// Wakes waits for the end of a compaction, to check their condition again.
    pub(super) fn wake_waiters(&self) {
        self.ended.wake_all();
    }
}

/// The segments that a compaction empties.
#[derive(Default)]
struct PlannedCompaction {
    victims: Vec<SegmentId>,
    /// Number of segments that the moved blocks need.
    segments: u64,
}

impl Compaction {
    /// Waits for the end of a running compaction, unless the map is full until the next checkpoint.
    pub(super) async fn until_ended(&self, shard: &Shard) {
        let is_blocking = || self.is_running() && !shard.ledger.map.borrow().is_over_budget();
        self.ended.until(|| (!is_blocking()).then_some(())).await;
    }

    /// Gains space when only the checkpoint reserve is left. Returns false if nothing can be gained
    /// now.
    pub(super) async fn compact(&self, shard: &Rc<Shard>) -> bool {
        if shard.log.checkpoints.is_running() {
            // It may free space, and it decides which nodes are to be stored.
            shard.checkpointer.until(|| !shard.log.checkpoints.is_running()).await;
            return true;
        }
        self.running.set(true);
        let planned = self.plan(shard).await.unwrap_or_else(|error| {
            tracing::debug!(shard = %shard.identity.shard, %error, "no compaction planned");
            PlannedCompaction::default()
        });
        if !planned.victims.is_empty() {
            self.count.set(self.count.get() + 1);
            shard.log.begin_compaction(planned.segments);
            self.empty(shard, &planned.victims).await;
            shard.log.end_compaction();
        }
        self.running.set(false);
        self.wake_waiters();
        shard.cleaner.note_idle(shard, self.is_worth_a_checkpoint(shard))
    }

    /// Returns true if the next checkpoint frees segments, or makes room in the map for another
    /// compaction.
    fn is_worth_a_checkpoint(&self, shard: &Shard) -> bool {
        let map = shard.ledger.map.borrow();
        shard.cleaner.freeable_segments(shard) > 0 || map.dirtied() > map.dirty_max() / 4
    }

    /// Empties the planned segments; gives up if a checkpoint comes in between.
    async fn empty(&self, shard: &Rc<Shard>, planned: &[SegmentId]) {
        let ended = shard.checkpointer.ended();
        let overtaken = || shard.log.checkpoints.is_running() || shard.checkpointer.ended() != ended;
        for victim in planned {
            if overtaken() || shard.has_ended() || !shard.rows.segments.borrow().is_cleanable(*victim) {
                return;
            }
            match shard.cleaner.clean_pinned(shard, *victim).await {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::Closed) => return,
                Err(error) => {
                    tracing::warn!(shard = %shard.identity.shard, segment = %victim, %error, "segment not emptied");
                }
            }
        }
    }

    /// Returns the segments with the largest net gain when they are emptied together; none if the
    /// cost is as high as the gain. Leaves out segments that cannot be read, and those with which
    /// the cost would exceed the budget.
    async fn plan(&self, shard: &Shard) -> Result<PlannedCompaction> {
        let free_zones = shard.link.free_space().await?;
        let (budget, victims, snapshot) = self.budget(shard, free_zones);
        if self.without_gain.borrow().as_ref() == Some(&snapshot) {
            return Ok(PlannedCompaction::default());
        }
        let mut plan = Plan::new(shard.ledger.map.borrow().nodes_to_store().collect());
        let mut best = (0, 0, 0);
        let mut left_out = 0;
        for victim in victims {
            if shard.log.checkpoints.is_running() || shard.has_ended() {
                return Ok(PlannedCompaction::default());
            }
            let cost = match self.survey(shard, victim).await {
                Ok(Some(cost)) => Some(cost),
                Ok(None) => continue,
                Err(error) => {
                    tracing::debug!(shard = %shard.identity.shard, segment = %victim, %error, "segment not surveyed");
                    None
                }
            };
            let affordable = cost.and_then(|cost| Some((budget.gain_with(&plan, &cost)?, cost)));
            let Some(((gain, segments), cost)) = affordable else {
                left_out += 1;
                if left_out == LEFT_OUT_MAX {
                    break;
                }
                continue;
            };
            plan.add(cost);
            if gain > best.0 {
                best = (gain, plan.victims.len(), segments);
            }
        }
        let (gain, count, segments) = best;
        self.without_gain.replace((gain == 0).then_some(snapshot));
        plan.victims.truncate(count);
        let gained = gain / SEGMENT_PARTS;
        tracing::debug!(shard = %shard.identity.shard, free = budget.free, gained, victims = count, segments, "compacting");
        Ok(PlannedCompaction { victims: plan.victims, segments })
    }

    fn budget(
        &self,
        shard: &Shard,
        free_zones: FreeSpace,
    ) -> (CompactionBudget, Vec<SegmentId>, SpaceSnapshot) {
        let segments = shard.rows.segments.borrow();
        let map = shard.ledger.map.borrow();
        let free = shard.log.pacer.space.shard_share();
        let snapshot = SpaceSnapshot {
            live: segments.live_blocks(),
            free,
            free_zones: free_zones.clone(),
            nodes: map.dirtied(),
        };
        let budget = CompactionBudget {
            free,
            free_zones,
            room: shard.log.appender.room_for_moves(),
            segment: shard.geometry.segment_blocks(),
            payload: shard.geometry.segment_payload().max(1),
            // The rest is left for nodes that other requests make dirty.
            nodes_max: map.dirty_max() as u64 * 3 / 4,
        };
        (budget, segments.victims(), snapshot)
    }

    /// Returns the cost of emptying a segment; `None` if it cannot be emptied now.
    async fn survey(&self, shard: &Shard, victim: SegmentId) -> Result<Option<VictimCost>> {
        if !shard.rows.segments.borrow().is_cleanable(victim) {
            return Ok(None);
        }
        let _pin = shard.rows.pin(victim);
        let record = shard.rows.segments.borrow().record(victim);
        let mut headers = HeaderReader::new(&shard.rows, &shard.identity, victim, &record);
        let (blocks, nodes) = self.moves(shard, &mut headers).await?;
        // Each chunk has a header, and padding to the end of its row.
        let chunks = blocks.div_ceil(BlockMover::new(shard).chunk_blocks() as u64);
        let moved = blocks + chunks * (1 + u64::from(shard.geometry.scheme.data()));
        let zones = zones_for_new_segments(&record.columns, &shard.rows.drives);
        Ok(Some(VictimCost { victim, zones, moved, nodes }))
    }

    /// Returns the number of blocks that are moved when a segment is emptied, and the nodes that
    /// are stored then.
    async fn moves(
        &self,
        shard: &Shard,
        headers: &mut HeaderReader<'_>,
    ) -> Result<(u64, HashSet<MissingNode>)> {
        let (mut blocks, mut cells, mut nodes) = (0, MetadataCells::new(), HashSet::new());
        while let Some(live) = BlockMover::new(shard).next_live(headers, &mut cells).await? {
            Reactor::current().yield_now().await;
            let map = shard.ledger.map.borrow();
            for live in live {
                let count = live.crcs.len() as u64;
                let leaves = live.block / LEAF_BLOCKS..=(live.block + count - 1) / LEAF_BLOCKS;
                let leaf = |index| MissingNode { layer: live.layer, level: 0, index };
                nodes.extend(leaves.flat_map(|index| map.with_ancestors(leaf(index))));
                blocks += count;
            }
        }
        for (node, place) in cells {
            // Table blocks are stored with each checkpoint.
            let Some(node) = node else { continue };
            if shard.walk(|map| map.is_stored_at(node, place)).await? {
                nodes.extend(shard.ledger.map.borrow().with_ancestors(node));
            }
        }
        Ok((blocks, nodes))
    }
}
