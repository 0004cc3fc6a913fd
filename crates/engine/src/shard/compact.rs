//! Compaction: cleaning when only the checkpoint reserve is left.
//!
//! Only checkpoints may allocate then, and checkpoints alone never free a segment. Moving live
//! blocks, and the two checkpoints after which the emptied segments are free, take space before
//! they gain any. So the cost of emptying several segments together is computed first, and paid
//! only if the space is there and the gain is larger: otherwise each round would use up a part of
//! the reserve until no checkpoint could be made (S4). The next checkpoint waits for the whole
//! compaction, because one in between would take its own share and gain less.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use format::{Scheme, SegmentColumn, SegmentId};
use reactor::{Reactor, WaitList};

use super::block_mover::{BlockMover, MetadataCells};
use super::headers::HeaderReader;
use super::{LEAF_BLOCKS, Shard};
use crate::drives::{DriveUse, Drives};
use crate::error::{ErrorKind, Result};
use crate::map::MissingNode;
use crate::space::CHECKPOINT_OVERHEAD;

/// The compaction state of a shard.
#[derive(Default)]
pub(super) struct Compaction {
    running: Cell<bool>,
    /// Compactions that had segments to empty.
    count: Cell<u64>,
    /// The space when no compaction could gain any: until it changes, none can.
    without_gain: Cell<Option<SpaceSnapshot>>,
    ended: WaitList,
}

/// Live blocks, free segments, and nodes to be stored.
#[derive(Clone, Copy, PartialEq, Eq)]
struct SpaceSnapshot(u64, u64, usize);

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

/// Segments to be emptied together, and the cost.
#[derive(Default)]
struct Plan {
    victims: Vec<SegmentId>,
    /// Zones that these segments free for new segments.
    zones: u64,
    /// Blocks to be written for the moves, headers and padding of rows included.
    moved: u64,
    /// Map nodes and table blocks that the next checkpoint stores.
    nodes: HashSet<MissingNode>,
}

/// The segments that a compaction empties.
#[derive(Default)]
struct PlannedCompaction {
    victims: Vec<SegmentId>,
    /// Number of segments that the moved blocks need.
    segments: u64,
}

/// The space available for a compaction.
struct CompactionBudget {
    /// Segments that may be opened.
    free: u64,
    /// Blocks left in the open segment of moved data.
    room: u64,
    /// Capacity of a segment, in data blocks and in map nodes.
    segment: u64,
    payload: u64,
    /// Zones that a new segment takes.
    width: u64,
    /// Maximum number of nodes that the next checkpoint may store.
    nodes_max: u64,
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
        let planned = self.plan(shard).await;
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
    /// cost is as high as the gain, or exceeds the budget.
    async fn plan(&self, shard: &Shard) -> PlannedCompaction {
        let (budget, victims, snapshot) = self.budget(shard);
        if self.without_gain.get() == Some(snapshot) {
            return PlannedCompaction::default();
        }
        let mut plan =
            Plan { nodes: shard.ledger.map.borrow().nodes_to_store().collect(), ..Plan::default() };
        let mut best = (0, 0, 0);
        for victim in victims {
            if shard.log.checkpoints.is_running() || shard.has_ended() {
                return PlannedCompaction::default();
            }
            match self.survey(shard, victim, &mut plan).await {
                Ok(()) => {}
                Err(error) => {
                    tracing::debug!(shard = %shard.identity.shard, segment = %victim, %error, "segment not surveyed");
                    break;
                }
            }
            match budget.gain(&plan) {
                Some(gain) if gain > best.0 => {
                    best = (gain, plan.victims.len(), budget.segments_for_moves(&plan))
                }
                Some(_) => {}
                None => break,
            }
        }
        let (gain, count, segments) = best;
        self.without_gain.set((gain == 0).then_some(snapshot));
        plan.victims.truncate(count);
        tracing::debug!(shard = %shard.identity.shard, free = budget.free, zones = gain, victims = count, segments, "compacting");
        PlannedCompaction { victims: plan.victims, segments }
    }

    fn budget(&self, shard: &Shard) -> (CompactionBudget, Vec<SegmentId>, SpaceSnapshot) {
        let segments = shard.rows.segments.borrow();
        let map = shard.ledger.map.borrow();
        let budget = CompactionBudget {
            free: shard.log.pacer.space.shard_share(),
            room: shard.log.appender.room_for_moves(),
            segment: shard.geometry.segment_blocks(),
            payload: shard.geometry.segment_payload().max(1),
            width: zones_of_new_segment(shard.geometry.scheme, &shard.rows.drives),
            // The rest is left for nodes that other requests make dirty.
            nodes_max: map.dirty_max() as u64 * 3 / 4,
        };
        let snapshot = SpaceSnapshot(segments.live_blocks(), budget.free, map.dirtied());
        (budget, segments.victims(), snapshot)
    }

    /// Adds a segment to a plan.
    async fn survey(&self, shard: &Shard, victim: SegmentId, plan: &mut Plan) -> Result<()> {
        if !shard.rows.segments.borrow().is_cleanable(victim) {
            return Ok(());
        }
        let pin = shard.rows.pin(victim);
        let record = shard.rows.segments.borrow().record(victim);
        let mut headers = HeaderReader::new(&shard.rows, &shard.identity, victim, &record);
        let blocks = self.add_nodes(shard, &mut headers, plan).await?;
        drop(pin);
        // Each chunk has a header, and padding to the end of its row.
        let chunks = blocks.div_ceil(BlockMover::new(shard).chunk_blocks() as u64);
        plan.moved += blocks + chunks * (1 + u64::from(shard.geometry.scheme.data()));
        plan.zones += zones_for_new_segments(&record.columns, &shard.rows.drives);
        plan.victims.push(victim);
        Ok(())
    }

    /// Adds the nodes that are stored when a segment is emptied; returns the number of blocks that
    /// are moved.
    async fn add_nodes(&self, shard: &Shard, headers: &mut HeaderReader<'_>, plan: &mut Plan) -> Result<u64> {
        let (mut blocks, mut nodes) = (0, MetadataCells::new());
        while let Some(live) = BlockMover::new(shard).next_live(headers, &mut nodes).await? {
            Reactor::current().yield_now().await;
            let map = shard.ledger.map.borrow();
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
            if shard.walk(|map| map.is_stored_at(node, place)).await? {
                plan.nodes.extend(shard.ledger.map.borrow().with_ancestors(node));
            }
        }
        Ok(blocks)
    }
}

impl CompactionBudget {
    /// Returns the number of segments that are opened for the moved blocks of a plan.
    fn segments_for_moves(&self, plan: &Plan) -> u64 {
        plan.moved.saturating_sub(self.room).div_ceil(self.segment)
    }

    /// Returns the zones that a plan gains; `None` if it exceeds the budget.
    fn gain(&self, plan: &Plan) -> Option<u64> {
        let nodes = plan.nodes.len() as u64;
        let moves = self.segments_for_moves(plan);
        // The first checkpoint empties the segments; the second frees them.
        let checkpoints = (nodes + 2 * CHECKPOINT_OVERHEAD).div_ceil(self.payload);
        let taken = moves + checkpoints;
        (nodes <= self.nodes_max && taken < self.free).then(|| plan.zones.saturating_sub(taken * self.width))
    }
}

/// Returns the number of zones that a new segment takes: it lacks columns when there are too few
/// drives.
fn zones_of_new_segment(scheme: Scheme, drives: &Drives) -> u64 {
    u64::from(scheme.width()).min(drives.active_count() as u64).max(scheme.data().into())
}

/// Returns the number of zones of a segment that new segments can take: those of lost and draining
/// drives cannot be allocated.
fn zones_for_new_segments(columns: &[SegmentColumn], drives: &Drives) -> u64 {
    let is_usable = |(drive, _)| drives.use_of(drive) == DriveUse::Active;
    columns.iter().filter(|column| column.zone.is_some_and(is_usable)).count() as u64
}

#[cfg(test)]
mod tests {
    use format::{DriveIndex, LayerId, ZoneIndex};
    use reactor::{Clock, Drive, Memory, ParkDriver, SystemClock};

    use super::*;

    const BUDGET: CompactionBudget =
        CompactionBudget { free: 8, room: 0, segment: 64, payload: 60, width: 5, nodes_max: 100 };

    fn plan(segments: u64, moved: u64, nodes: u64) -> Plan {
        let node = |index| MissingNode { layer: LayerId::new(7), level: 0, index };
        Plan { victims: Vec::new(), zones: segments * 5, moved, nodes: (0..nodes).map(node).collect() }
    }

    #[test]
    fn the_gain_is_freed_zones_less_moves_and_two_checkpoints() {
        assert_eq!(BUDGET.gain(&plan(1, 0, 1)), Some(0));
        assert_eq!(BUDGET.gain(&plan(2, 0, 20)), Some(5));
        assert_eq!(BUDGET.gain(&plan(2, 0, 21)), Some(0));
        assert_eq!(BUDGET.gain(&plan(2, 1, 20)), Some(0));
        assert_eq!(BUDGET.gain(&plan(3, 64, 20)), Some(5));
        assert_eq!(BUDGET.gain(&plan(3, 65, 20)), Some(0));
        assert_eq!(CompactionBudget { room: 1, ..BUDGET }.gain(&plan(3, 65, 20)), Some(5));
        // A mirror of two columns frees two zones.
        assert_eq!(BUDGET.gain(&Plan { zones: 3 * 2, ..plan(3, 0, 20) }), Some(1));
    }

    #[test]
    fn with_a_lost_drive_segments_free_and_take_fewer_zones() {
        let scheme: Scheme = "4+1".parse().unwrap();
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
        reactor.run(async {
            let memory: Vec<_> = (0..6).map(|_| Memory::new(4096).unwrap()).collect();
            let open = memory.iter().map(|memory| Some(memory.open() as Rc<dyn Drive>));
            let drives = Drives::new(open.collect());
            let column = |drive| SegmentColumn::whole(DriveIndex::new(drive), ZoneIndex::new(0));
            let mut columns: Vec<_> = (0..4).map(column).collect();
            columns.push(SegmentColumn::hole());
            let zones = || (zones_of_new_segment(scheme, &drives), zones_for_new_segments(&columns, &drives));
            assert_eq!(zones(), (5, 4));
            drives.take_offline(DriveIndex::new(0));
            assert_eq!(zones(), (5, 3), "five drives are left");
            drives.set_draining(&[DriveIndex::new(3)]);
            assert_eq!(zones(), (4, 2));
            (1..5).for_each(|drive| drives.take_offline(DriveIndex::new(drive)));
            assert_eq!(zones(), (4, 0), "no segment has fewer columns than data");
        });
        reactor.shut_down();
        // Emptied segments have four usable zones as well.
        let degraded = CompactionBudget { width: 4, ..BUDGET };
        assert_eq!(degraded.gain(&Plan { zones: 2 * 4, ..plan(2, 0, 20) }), Some(4));
        assert_eq!(BUDGET.gain(&Plan { zones: 2 * 4, ..plan(2, 0, 20) }), Some(3));
    }

    #[test]
    fn a_plan_over_budget_is_rejected() {
        assert_eq!(BUDGET.gain(&plan(9, 0, 100)), Some(6 * 5));
        assert_eq!(BUDGET.gain(&plan(9, 0, 101)), None);
        assert_eq!(BUDGET.gain(&plan(9, 4 * 64, 100)), Some(2 * 5));
        assert_eq!(BUDGET.gain(&plan(9, 5 * 64, 100)), None);
    }
}
