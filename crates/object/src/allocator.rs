//! The free space of the region of bodies.
//!
//! Next fit: the search continues after the last allocation, and takes up to `GAPS_MAX` gaps into
//! account before it uses new addresses. Always true: free ranges do not overlap or touch.

use std::collections::BTreeMap;
use std::ops::Bound;

/// A range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BodyRun {
    /// The first block.
    pub(crate) start: u64,
    /// The number of blocks.
    pub(crate) blocks: u64,
}

/// Gaps to look at before new addresses are used.
const GAPS_MAX: usize = 64;
/// A gap of this many blocks, 1 MiB, is taken even for a larger body.
const GAP_BLOCKS_MIN: u64 = 256;

/// The allocator of the body region.
#[derive(Debug)]
pub(crate) struct Allocator {
    free: BTreeMap<u64, u64>,
    /// The block at which the next search begins.
    cursor: u64,
    /// Blocks from here on are not in use, nor free yet.
    frontier: u64,
    end: u64,
}

impl Allocator {
    /// An allocator for the blocks of `start..frontier` without the runs in use, and for new blocks
    /// of `frontier..end`. `used` are the runs in use, in order.
    pub(crate) fn new(start: u64, frontier: u64, end: u64, used: impl Iterator<Item = BodyRun>) -> Self {
        let mut free = BTreeMap::new();
        let mut next = start;
        for run in used {
            if run.start > next {
                free.insert(next, run.start - next);
            }
            next = next.max(run.start + run.blocks);
        }
        if frontier > next {
            free.insert(next, frontier - next);
        }
        Self { free, cursor: start, frontier, end }
    }

    /// The free ranges below the frontier.
    pub(crate) fn gaps(&self) -> Vec<BodyRun> {
        self.free.iter().map(|(start, blocks)| BodyRun { start: *start, blocks: *blocks }).collect()
    }

    /// The number of free blocks below the frontier.
    pub(crate) fn free_blocks(&self) -> u64 {
        self.free.values().sum()
    }

    /// The first block that is not available before [`Allocator::advance`].
    pub(crate) fn frontier(&self) -> u64 {
        self.frontier
    }

    /// Returns the frontier `blocks` further on, up to the end.
    pub(crate) fn next_frontier(&self, blocks: u64) -> u64 {
        self.frontier.saturating_add(blocks).min(self.end)
    }

    /// Makes the blocks up to a new frontier available.
    pub(crate) fn advance(&mut self, frontier: u64) {
        if frontier > self.frontier {
            let run = BodyRun { start: self.frontier, blocks: frontier - self.frontier };
            self.frontier = frontier;
            self.free(run);
        }
    }

    /// Takes runs of `blocks` blocks in total; `None` if too few blocks are available.
    pub(crate) fn allocate(&mut self, blocks: u64) -> Option<Vec<BodyRun>> {
        let mut runs = Vec::new();
        let mut missing = blocks;
        while missing > 0 {
            match self.take(missing) {
                Some(run) => {
                    missing -= run.blocks;
                    runs.push(run);
                }
                None => {
                    runs.into_iter().for_each(|run| self.free(run));
                    return None;
                }
            }
        }
        Some(runs)
    }

    fn take(&mut self, wanted: u64) -> Option<BodyRun> {
        let start = self.find(wanted)?;
        let length = self.free.remove(&start)?;
        let blocks = length.min(wanted);
        if length > blocks {
            self.free.insert(start + blocks, length - blocks);
        }
        self.cursor = start + blocks;
        Some(BodyRun { start, blocks })
    }

    /// Returns the start of a gap that is large enough, or else of the largest one of those seen.
    fn find(&self, wanted: u64) -> Option<u64> {
        let enough = wanted.min(GAP_BLOCKS_MIN);
        let after = self.free.range((Bound::Included(self.cursor), Bound::Unbounded));
        let before = self.free.range((Bound::Unbounded, Bound::Excluded(self.cursor)));
        let is_at_end = self.frontier == self.end;
        let limit = if is_at_end { usize::MAX } else { GAPS_MAX };
        let mut largest: Option<(u64, u64)> = None;
        for (start, length) in after.chain(before).take(limit) {
            if *length >= enough {
                return Some(*start);
            }
            if largest.is_none_or(|(_, most)| most < *length) {
                largest = Some((*start, *length));
            }
        }
        largest.filter(|_| is_at_end).map(|(start, _)| start)
    }

    /// Makes a run available again.
    pub(crate) fn free(&mut self, run: BodyRun) {
        let BodyRun { mut start, mut blocks } = run;
        if let Some((before, length)) = self.free.range(..start).next_back().map(|(a, b)| (*a, *b)) {
            assert!(before + length <= start, "blocks {start}+{blocks} were free already");
            if before + length == start {
                self.free.remove(&before);
                start = before;
                blocks += length;
            }
        }
        if let Some((after, length)) = self.free.range(start..).next().map(|(a, b)| (*a, *b)) {
            assert!(start + blocks <= after, "blocks {start}+{blocks} were free already");
            if start + blocks == after {
                self.free.remove(&after);
                blocks += length;
            }
        }
        self.free.insert(start, blocks);
    }
}

#[cfg(test)]
#[path = "allocator_tests.rs"]
mod tests;
