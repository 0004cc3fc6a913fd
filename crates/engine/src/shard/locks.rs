//! Block locks, for writes that begin or end within a block.
//!
//! A partial-block write reads the blocks at its ends, changes some of their sectors and writes all
//! of its blocks back; no other write may change these blocks in between. Writes of whole blocks
//! take no lock: they only check that none is held, right before they are queued.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use format::VolumeId;
use reactor::WaitList;

/// The locked blocks.
#[derive(Default)]
pub(super) struct BlockLocks {
    held: RefCell<BTreeSet<(VolumeId, u64)>>,
    released: WaitList,
}

/// A lock on a range of blocks; released when dropped.
pub(super) struct RangeLock<'a> {
    locks: &'a BlockLocks,
    volume: VolumeId,
    blocks: Range<u64>,
}

impl BlockLocks {
    /// Locks `count` blocks together, as soon as none of them is locked.
    pub(super) async fn lock(&self, volume: VolumeId, block: u64, count: u64) -> RangeLock<'_> {
        assert!(count > 0, "a lock covers a block");
        let blocks = block..block + count;
        let lock_all = || {
            let free = !self.any_held(volume, block, count);
            if free {
                self.held.borrow_mut().extend(blocks.clone().map(|block| (volume, block)));
            }
            free.then_some(())
        };
        self.released.until(lock_all).await;
        RangeLock { locks: self, volume, blocks }
    }

    /// Returns true if a block of the range is locked.
    pub(super) fn any_held(&self, volume: VolumeId, block: u64, count: u64) -> bool {
        let held = self.held.borrow();
        !held.is_empty()
            && held.range((volume, block)..(volume, block.saturating_add(count))).next().is_some()
    }

    /// Waits until no block of the range is locked.
    pub(super) async fn wait(&self, volume: VolumeId, block: u64, count: u64) {
        self.released.until(|| (!self.any_held(volume, block, count)).then_some(())).await;
    }
}

impl Drop for RangeLock<'_> {
    fn drop(&mut self) {
        let mut held = self.locks.held.borrow_mut();
        self.blocks
            .clone()
            .for_each(|block| assert!(held.remove(&(self.volume, block)), "a lock is held once"));
        drop(held);
        self.locks.released.wake_all();
    }
}
