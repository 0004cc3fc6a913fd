//! Locks on single blocks, for writes of less than a block.
//!
//! A partial write reads its block, changes some sectors and writes it back; nobody else may write the block in
//! between. Whole-block writes take no lock: they only look whether one is held, right before they are queued.

use std::cell::RefCell;
use std::collections::BTreeSet;

use format::VolumeId;
use reactor::WaitList;

/// Blocks that are locked now.
#[derive(Default)]
pub(super) struct BlockLocks {
    held: RefCell<BTreeSet<(VolumeId, u64)>>,
    released: WaitList,
}

/// A held lock; released when dropped.
pub(super) struct BlockLock<'a> {
    locks: &'a BlockLocks,
    block: (VolumeId, u64),
}

impl BlockLocks {
    /// Locks a block, waiting for whoever holds it.
    pub(super) async fn lock(&self, volume: VolumeId, block: u64) -> BlockLock<'_> {
        let block = (volume, block);
        self.released.until(|| self.held.borrow_mut().insert(block).then_some(())).await;
        BlockLock { locks: self, block }
    }

    /// True if a block of the range is locked.
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

impl Drop for BlockLock<'_> {
    fn drop(&mut self) {
        self.locks.held.borrow_mut().remove(&self.block);
        self.locks.released.wake_all();
    }
}
