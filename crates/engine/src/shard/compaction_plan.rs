//! The cost and the gain of a compaction.
//!
//! Plain state, pure decisions. Must not know: tasks, the way blocks are moved.

use std::collections::HashSet;

use format::{SegmentColumn, SegmentId};

use crate::drives::{DriveUse, Drives};
use crate::map::MissingNode;
use crate::space::CHECKPOINT_OVERHEAD;
use crate::zones::{FreeSpace, SEGMENT_PARTS};

/// The cost and the gain of emptying one segment.
pub(super) struct VictimCost {
    pub(super) victim: SegmentId,
    /// Drives of the zones that new segments can take once the segment is free.
    pub(super) zones: Vec<usize>,
    /// Blocks to be written for the moves, headers and padding of rows included.
    pub(super) moved: u64,
    /// Map nodes and table blocks that the next checkpoint stores.
    pub(super) nodes: HashSet<MissingNode>,
}

/// Segments to be emptied together, and the cost.
pub(super) struct Plan {
    pub(super) victims: Vec<SegmentId>,
    /// Zones that these segments free for new segments, by drive.
    zones: Vec<u32>,
    moved: u64,
    nodes: HashSet<MissingNode>,
}

/// The space available for a compaction.
pub(super) struct CompactionBudget {
    /// Segments that may be opened.
    pub(super) free: u64,
    /// Zones that new segments can take.
    pub(super) free_zones: FreeSpace,
    /// Blocks left in the open segment of moved data.
    pub(super) room: u64,
    /// Capacity of a segment, in data blocks and in map nodes.
    pub(super) segment: u64,
    pub(super) payload: u64,
    /// Maximum number of nodes that the next checkpoint may store.
    pub(super) nodes_max: u64,
}

impl Plan {
    /// Returns an empty plan. The next checkpoint stores `nodes` even without a compaction.
    pub(super) fn new(nodes: HashSet<MissingNode>) -> Self {
        Self { victims: Vec::new(), zones: Vec::new(), moved: 0, nodes }
    }

    /// Adds a segment.
    pub(super) fn add(&mut self, cost: VictimCost) {
        self.zones = self.zones_with(&cost);
        self.moved += cost.moved;
        self.nodes.extend(cost.nodes);
        self.victims.push(cost.victim);
    }

    fn zones_with(&self, cost: &VictimCost) -> Vec<u32> {
        let mut zones = self.zones.clone();
        for drive in &cost.zones {
            zones.resize(zones.len().max(drive + 1), 0);
            if let Some(count) = zones.get_mut(*drive) {
                *count += 1;
            }
        }
        zones
    }

    fn nodes_with(&self, cost: &VictimCost) -> u64 {
        (self.nodes.len() + cost.nodes.difference(&self.nodes).count()) as u64
    }
}

impl CompactionBudget {
    /// Returns the gain of a plan with another segment, and the number of segments that are opened
    /// for all its moves; `None` if it exceeds the budget. The gain is a number of segments, in
    /// units of 1/[`SEGMENT_PARTS`], and zero if the cost is as high.
    pub(super) fn gain_with(&self, plan: &Plan, cost: &VictimCost) -> Option<(u64, u64)> {
        let nodes = plan.nodes_with(cost);
        let moves = (plan.moved + cost.moved).saturating_sub(self.room).div_ceil(self.segment);
        // The first checkpoint empties the segments; the second frees them.
        let checkpoints = (nodes + 2 * CHECKPOINT_OVERHEAD).div_ceil(self.payload);
        let taken = moves + checkpoints;
        let freed = self.freed_parts(&plan.zones_with(cost));
        (nodes <= self.nodes_max && taken < self.free)
            .then(|| (freed.saturating_sub(taken * SEGMENT_PARTS), moves))
    }

    /// Returns the number of segments by which zones that become free increase what can be opened.
    /// Zones of a drive that has more free ones than the others increase it by nothing.
    fn freed_parts(&self, freed: &[u32]) -> u64 {
        self.free_zones.parts_with(freed) - self.free_zones.parts_with(&[])
    }
}

/// Returns the drives of the zones of a segment that new segments can take: those of lost and
/// draining drives cannot be allocated.
pub(super) fn zones_for_new_segments(columns: &[SegmentColumn], drives: &Drives) -> Vec<usize> {
    let usable = |column: &SegmentColumn| {
        let (drive, _) = column.zone?;
        (drives.use_of(drive) == DriveUse::Active).then(|| drive.index())
    };
    columns.iter().filter_map(usable).collect()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use format::{DriveIndex, LayerId, ZoneIndex};
    use reactor::{Clock, Drive, Memory, ParkDriver, Reactor, SystemClock};

    use super::*;
    use crate::zones::Zones;

    const WIDTH: u32 = 5;

    fn budget() -> CompactionBudget {
        CompactionBudget {
            free: 8,
            free_zones: free("4+1", &[8; WIDTH as usize], None),
            room: 0,
            segment: 64,
            payload: 60,
            nodes_max: 100,
        }
    }

    /// The free zones of drives, one of which may be missing.
    fn free(scheme: &str, counts: &[u32], missing: Option<usize>) -> FreeSpace {
        let all = counts.iter().enumerate();
        let mut zones = Zones::new(all.clone().map(|(drive, count)| (*count, Some(drive) != missing)));
        zones.allow_holes(all.map(|(drive, _)| Some(drive) == missing));
        zones.free_space(scheme.parse().unwrap())
    }

    /// Returns the gain, in segments, of emptying segments whose `moved` blocks need `nodes` nodes.
    fn gain(budget: &CompactionBudget, segments: u32, moved: u64, nodes: u64) -> Option<u64> {
        let mut plan = Plan::new(HashSet::new());
        (1..segments).for_each(|_| plan.add(cost(0, 0)));
        let (parts, opened) = budget.gain_with(&plan, &cost(moved, nodes))?;
        assert_eq!(opened, moved.saturating_sub(budget.room).div_ceil(budget.segment));
        assert_eq!(parts % SEGMENT_PARTS, 0);
        Some(parts / SEGMENT_PARTS)
    }

    /// A segment with a zone on each drive.
    fn cost(moved: u64, nodes: u64) -> VictimCost {
        let node = |index| MissingNode { layer: LayerId::new(7), level: 0, index };
        VictimCost {
            victim: SegmentId::new(0),
            zones: (0..WIDTH as usize).collect(),
            moved,
            nodes: (0..nodes).map(node).collect(),
        }
    }

    #[test]
    fn the_gain_is_freed_segments_less_moves_and_two_checkpoints() {
        assert_eq!(gain(&budget(), 1, 0, 1), Some(0));
        assert_eq!(gain(&budget(), 2, 0, 20), Some(1));
        assert_eq!(gain(&budget(), 2, 0, 21), Some(0));
        assert_eq!(gain(&budget(), 2, 1, 20), Some(0));
        assert_eq!(gain(&budget(), 3, 64, 20), Some(1));
        assert_eq!(gain(&budget(), 3, 65, 20), Some(0));
        assert_eq!(gain(&CompactionBudget { room: 1, ..budget() }, 3, 65, 20), Some(1));
    }

    #[test]
    fn a_node_of_several_segments_is_stored_once() {
        let mut plan = Plan::new(cost(0, 5).nodes);
        plan.add(cost(0, 20));
        let (parts, _) = budget().gain_with(&plan, &cost(0, 20)).unwrap();
        assert_eq!(parts, SEGMENT_PARTS);
    }

    #[test]
    fn zones_of_a_drive_with_more_free_ones_than_the_others_gain_nothing() {
        let on = |zones: &[usize]| VictimCost { zones: zones.to_vec(), ..cost(0, 0) };
        let mirror = CompactionBudget { free_zones: free("1+1", &[10, 2], None), ..budget() };
        let plan_of = |zones: &[usize]| {
            let mut plan = Plan::new(HashSet::new());
            (0..3).for_each(|_| plan.add(on(zones)));
            plan
        };
        // Four segments, one of which the checkpoints take.
        assert_eq!(mirror.gain_with(&plan_of(&[0]), &on(&[0])), Some((0, 0)));
        assert_eq!(mirror.gain_with(&plan_of(&[1]), &on(&[1])), Some((3 * SEGMENT_PARTS, 0)));
        assert_eq!(mirror.gain_with(&plan_of(&[0, 1]), &on(&[0, 1])), Some((3 * SEGMENT_PARTS, 0)));
    }

    #[test]
    fn zones_of_lost_and_draining_drives_are_not_free_for_new_segments() {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        let reactor = Reactor::new(ParkDriver::new(clock.clone()), clock);
        reactor.run(async {
            let memory: Vec<_> = (0..6).map(|_| Memory::new(4096).unwrap()).collect();
            let open = memory.iter().map(|memory| Some(memory.open() as Rc<dyn Drive>));
            let drives = Drives::new(open.collect());
            let column = |drive| SegmentColumn::whole(DriveIndex::new(drive), ZoneIndex::new(0));
            let mut columns: Vec<_> = (0..4).map(column).collect();
            columns.push(SegmentColumn::hole());
            let zones = || zones_for_new_segments(&columns, &drives);
            assert_eq!(zones(), vec![0, 1, 2, 3]);
            drives.take_offline(DriveIndex::new(0));
            assert_eq!(zones(), vec![1, 2, 3]);
            drives.set_draining(&[DriveIndex::new(3)]);
            assert_eq!(zones(), vec![1, 2]);
        });
        reactor.shut_down();
    }

    #[test]
    fn with_a_lost_drive_segments_with_holes_gain() {
        let on = |zones: &[usize]| VictimCost { zones: zones.to_vec(), ..cost(0, 20) };
        let gain = |space: FreeSpace, zones: &[usize]| {
            let mut plan = Plan::new(HashSet::new());
            plan.add(on(zones));
            CompactionBudget { free_zones: space, ..budget() }.gain_with(&plan, &on(zones)).unwrap().0
        };
        // The four other drives of 4+1 hold all columns of a segment.
        assert_eq!(gain(free("4+1", &[8; 5], Some(4)), &[0, 1, 2, 3]), SEGMENT_PARTS);
        // Segments have holes: one drive is missing, another one is full.
        assert_eq!(gain(free("2+1", &[5, 5, 0, 9], Some(3)), &[0, 1]), SEGMENT_PARTS);
        // All drives are there, and a full one limits the number of segments.
        assert_eq!(gain(free("2+1", &[5, 5, 0], None), &[0, 1]), 0);
    }

    #[test]
    fn a_plan_over_budget_is_rejected() {
        assert_eq!(gain(&budget(), 9, 0, 100), Some(6));
        assert_eq!(gain(&budget(), 9, 0, 101), None);
        assert_eq!(gain(&budget(), 9, 4 * 64, 100), Some(2));
        assert_eq!(gain(&budget(), 9, 5 * 64, 100), None);
    }
}
