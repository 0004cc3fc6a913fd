//! The lost blocks of a shard in memory: a bounded list, and the number of blocks beyond it.
//!
//! Plain state. Always true: the table counts as complete only if every block that was added since
//! the last complete review is listed, recovered or replaced. Must not know: how blocks are found
//! and how the list is stored.

use std::collections::BTreeMap;

use format::{Address, LOST_PER_BLOCK, LayerBlock, LayerId, LostBlock, LostList};

use crate::invariant::narrow;

/// Maximum number of listed blocks, and of blocks beyond the list that are distinguished.
const LISTED_MAX: usize = 16_384;

/// A layer and a block of it.
pub(super) type LostKey = (LayerId, u64);

/// The lost blocks of a shard.
#[derive(Debug)]
pub(super) struct LostTable {
    listed: BTreeMap<LostKey, Address>,
    /// Lost blocks for which the list has no room. Their number is stored.
    beyond: BTreeMap<LostKey, Address>,
    /// A block was added for which `beyond` had no room either.
    overflowed: bool,
    /// Number of blocks beyond the list before the last review began.
    earlier: u64,
    max: usize,
}

impl Default for LostTable {
    fn default() -> Self {
        Self::with_max(LISTED_MAX)
    }
}

impl LostTable {
    fn with_max(max: usize) -> Self {
        Self { listed: BTreeMap::new(), beyond: BTreeMap::new(), overflowed: false, earlier: 0, max }
    }

    /// Adds a block that was lost at `address`. Returns true if this changes the list or the number
    /// of blocks beyond it.
    pub(super) fn insert(&mut self, key: LostKey, address: Address) -> bool {
        if self.listed.contains_key(&key) || self.listed.len() < self.max {
            self.beyond.remove(&key);
            return self.listed.insert(key, address) != Some(address);
        }
        let before = self.unlisted();
        if self.beyond.contains_key(&key) || self.beyond.len() < self.max {
            self.beyond.insert(key, address);
        } else {
            self.overflowed = true;
        }
        self.unlisted() != before
    }

    /// Removes a listed block.
    pub(super) fn remove(&mut self, key: LostKey) {
        self.listed.remove(&key);
    }

    /// Returns the listed blocks.
    pub(super) fn listed(&self) -> impl ExactSizeIterator<Item = (LostKey, Address)> + '_ {
        self.listed.iter().map(|(key, address)| (*key, *address))
    }

    /// Minimum number of lost blocks that are not listed; 0 if the list is complete.
    pub(super) fn unlisted(&self) -> u64 {
        self.earlier.max(self.beyond.len() as u64 + u64::from(self.overflowed))
    }

    /// Begins a review: all blocks that are lost now are added again before it ends.
    pub(super) fn begin_review(&mut self) {
        self.earlier = self.unlisted();
        self.beyond.clear();
        self.overflowed = false;
    }

    /// Lists blocks from beyond the list as far as there is room, and returns them.
    pub(super) fn fill_up(&mut self) -> Vec<(LostKey, Address)> {
        let mut moved = Vec::new();
        while self.listed.len() < self.max
            && let Some((key, address)) = self.beyond.pop_first()
        {
            self.listed.insert(key, address);
            moved.push((key, address));
        }
        moved
    }

    /// Ends a review. From now on, only blocks that were added since its beginning count.
    pub(super) fn end_review(&mut self) {
        self.earlier = 0;
    }

    /// Adds a block of the stored list.
    pub(super) fn restore(&mut self, list: &LostList) {
        for lost in &list.listed {
            self.insert((lost.layer, lost.block.get()), lost.address);
        }
        self.restore_unlisted(list.unlisted.into());
    }

    /// Sets the minimum number of blocks that the stored list does not name.
    pub(super) fn restore_unlisted(&mut self, count: u64) {
        self.earlier = self.earlier.max(count);
    }

    /// Returns the blocks of the list to store; none if there are no lost blocks.
    pub(super) fn to_store(&self) -> Vec<LostList> {
        let one = |((layer, block), address)| LostBlock { layer, block: LayerBlock::new(block), address };
        let listed: Vec<LostBlock> = self.listed().map(one).collect();
        let chunks = listed.chunks(LOST_PER_BLOCK).map(<[LostBlock]>::to_vec);
        let mut lists: Vec<LostList> = chunks.map(|listed| LostList { listed, unlisted: 0 }).collect();
        let unlisted = narrow::<u32, _>(self.unlisted().min(u64::from(u32::MAX)), "C5");
        if lists.is_empty() && unlisted > 0 {
            lists.push(LostList::default());
        }
        if let Some(first) = lists.first_mut() {
            first.unlisted = unlisted;
        }
        lists
    }
}

#[cfg(test)]
mod tests {
    use format::{Column, Row, SegmentId};

    use super::*;

    fn key(block: u64) -> LostKey {
        (LayerId::new(16), block)
    }

    fn at(row: u32) -> Address {
        Address::new(SegmentId::new(1), Column::new(0), Row::new(row))
    }

    /// A table with room for four blocks, with `count` lost blocks.
    fn table(count: u64) -> LostTable {
        let mut table = LostTable::with_max(4);
        (0..count).for_each(|block| _ = table.insert(key(block), at(1)));
        table
    }

    /// The table after a restart.
    fn restarted(table: &LostTable) -> LostTable {
        let mut restored = LostTable::with_max(table.max);
        table.to_store().iter().for_each(|list| restored.restore(list));
        restored
    }

    #[test]
    fn blocks_beyond_the_list_are_counted_once() {
        let mut table = table(6);
        assert_eq!((table.listed().len(), table.unlisted()), (4, 2));
        for _ in 0..3 {
            assert!(!table.insert(key(1), at(1)) && !table.insert(key(5), at(1)));
        }
        assert!(table.insert(key(1), at(2)), "a listed block was lost at another address");
        assert_eq!((table.listed().len(), table.unlisted()), (4, 2));
        assert!(table.insert(key(6), at(1)) && table.insert(key(7), at(1)) && table.insert(key(8), at(1)));
        assert!(!table.insert(key(9), at(1)), "further blocks are not distinguished");
        assert_eq!(table.unlisted(), 5);
    }

    #[test]
    fn an_incomplete_list_stays_incomplete_across_restarts() {
        let mut table = restarted(&restarted(&table(7)));
        assert_eq!((table.listed().len(), table.unlisted()), (4, 3));
        assert!(!table.insert(key(5), at(1)), "it was counted before the restart");
        (0..4).for_each(|block| table.remove(key(block)));
        assert_eq!(table.to_store().len(), 1, "an empty list is stored while it is incomplete");
        assert_eq!(restarted(&table).unlisted(), 3);
        assert_eq!(LostTable::default().to_store(), []);
    }

    #[test]
    fn a_complete_review_counts_again() {
        let mut table = restarted(&table(7));
        table.begin_review();
        (0..3).for_each(|block| table.remove(key(block)));
        assert_eq!(table.unlisted(), 3, "nothing is forgotten before the review ends");
        (3..7).for_each(|block| _ = table.insert(key(block), at(1)));
        assert_eq!(table.fill_up(), []);
        table.end_review();
        assert_eq!((table.listed().len(), table.unlisted()), (4, 0));
    }

    #[test]
    fn a_review_lists_blocks_from_beyond_the_list() {
        let mut table = table(4);
        table.begin_review();
        (0..7).for_each(|block| _ = table.insert(key(block), at(1)));
        (0..2).for_each(|block| table.remove(key(block)));
        assert_eq!(table.fill_up(), [(key(4), at(1)), (key(5), at(1))]);
        table.end_review();
        assert_eq!((table.listed().len(), table.unlisted()), (4, 1));
    }

    #[test]
    fn an_overflow_during_a_review_keeps_the_list_incomplete() {
        let mut table = table(0);
        table.begin_review();
        (0..9).for_each(|block| _ = table.insert(key(block), at(1)));
        (0..4).for_each(|block| table.remove(key(block)));
        assert_eq!(table.fill_up().len(), 4);
        table.end_review();
        assert_eq!(table.unlisted(), 1);
    }

    #[test]
    fn long_lists_are_stored_in_blocks() {
        let mut table = LostTable::default();
        (0..LOST_PER_BLOCK as u64 + 1).for_each(|block| _ = table.insert(key(block), at(1)));
        let stored = table.to_store();
        assert_eq!(stored.iter().map(|list| list.listed.len()).collect::<Vec<_>>(), [LOST_PER_BLOCK, 1]);
        let mut restored = LostTable::default();
        stored.iter().for_each(|list| restored.restore(list));
        assert!(restored.listed().eq(table.listed()));
    }
}
