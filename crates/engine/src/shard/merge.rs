//! Removing a layer: its blocks are merged into the layer above it, or freed.

use std::ops::Range;
use std::rc::Rc;

use format::{Item, LayerBlock, LayerId, NODE_ENTRIES, UnmapMode};
use reactor::Reactor;
use smallvec::SmallVec;

use super::walk::pin_leaves;
use super::{LEAF_BLOCKS, Shard};
use crate::error::Result;
use crate::invariant::narrow;
use crate::log::{Effect, Request, WriteClass};
use crate::map::Pins;

/// Maximum number of leaves that one record merges.
const MERGE_LEAVES: usize = 64;
/// Maximum number of block runs that one record purges: their items fit one header block.
const PURGE_RUNS: usize = 128;

impl Shard {
    /// Merges the blocks of `from` into `into`, the only layer above it, except blocks that `into`
    /// has overwritten, and removes `from`. `from` is not written to any more; `into` is in use. No
    /// data is moved.
    ///
    /// # Errors
    /// As [`Shard::unmap`]; the call can be repeated then.
    pub(crate) async fn merge_layer(self: &Rc<Self>, from: LayerId, into: LayerId) -> Result<()> {
        let mut next = 0;
        let end = format::limits::LAYER_BLOCKS_MAX;
        loop {
            self.check_stopping()?;
            self.make_room_in_map().await?;
            let Some(found) = self.walk(|map| map.next_leaf(from, next, end)).await? else { break };
            next = self.merge_leaves(from, into, found).await?;
        }
        self.forget_layer(from).await
    }

    /// Merges leaves from the one of `block` on; returns the block at which the next ones begin.
    async fn merge_leaves(&self, from: LayerId, into: LayerId, block: u64) -> Result<u64> {
        // A share of the nodes that may be dirty between two checkpoints: each merge dirties two
        // leaves and their ancestors.
        let leaves = (self.ledger.map.borrow().dirty_max() / 32).clamp(1, MERGE_LEAVES) as u64;
        let leaf = NODE_ENTRIES as u64;
        let start = block / leaf * leaf;
        // A layer of the maximum size ends within the last part.
        let count = (leaves * leaf).min(format::limits::LAYER_BLOCKS_MAX - start);
        let from_leaves = self.prepare_unmap(from, start, count).await?;
        let into_leaves = match self.leaves_above(&from_leaves, into).await {
            Ok(pins) => pins,
            Err(error) => {
                self.unpin(&from_leaves);
                return Err(error);
            }
        };
        let count = narrow(count, "F3");
        let request = Request {
            items: SmallVec::from_elem(Item::Merge { from, into, block: LayerBlock::new(start), count }, 1),
            data: SmallVec::new(),
            effect: Effect::Merge { from: from_leaves, into: into_leaves },
            reply: None,
        };
        self.log.commit(WriteClass::Freeing, request).await?;
        Ok(start + u64::from(count))
    }

    /// Pins the leaves of `into` that cover the same blocks, and creates missing ones.
    async fn leaves_above(&self, leaves: &[crate::map::NodeRef], into: LayerId) -> Result<Pins> {
        let mut pins = Pins::new();
        for leaf in leaves {
            let start = self.ledger.map.borrow().leaf_start(*leaf);
            match pin_leaves(&self.ledger, &self.rows, into, start, NODE_ENTRIES as u64).await {
                Ok(more) => pins.extend(more),
                Err(error) => {
                    self.unpin(&pins);
                    return Err(error);
                }
            }
        }
        Ok(pins)
    }

    /// Frees the blocks of a layer that none of the layers above it shows; `above` are all of
    /// these. The layer itself is not in use any more.
    ///
    /// # Errors
    /// As [`Shard::unmap`].
    pub(crate) async fn purge_layer(&self, layer: LayerId, above: &[LayerId]) -> Result<()> {
        let mut next = 0;
        let end = format::limits::LAYER_BLOCKS_MAX;
        while let Some(found) = self.walk(|map| map.next_leaf(layer, next, end)).await? {
            self.check_stopping()?;
            self.make_room_in_map().await?;
            // A leaf in memory without hidden blocks is passed without waiting for anything.
            Reactor::current().yield_now().await;
            let leaf = found / LEAF_BLOCKS * LEAF_BLOCKS;
            next = leaf + LEAF_BLOCKS;
            // A hidden block stays hidden: layers above keep their entries while there is a layer
            // below.
            let stored_and_hidden = self.stored_and_hidden(layer, above, leaf, NODE_ENTRIES).await?;
            let runs = runs_of(&stored_and_hidden);
            for runs in runs.chunks(PURGE_RUNS) {
                let item = |run: &Range<u64>| Item::Unmap {
                    layer,
                    block: LayerBlock::new(leaf + run.start),
                    count: run.end - run.start,
                    mode: UnmapMode::Absent,
                };
                let pins = self.prepare_unmap(layer, leaf, LEAF_BLOCKS).await?;
                let request = Request {
                    items: runs.iter().map(item).collect(),
                    data: SmallVec::new(),
                    effect: Effect::Leaves(pins),
                    reply: None,
                };
                self.log.commit(WriteClass::Freeing, request).await?;
            }
        }
        Ok(())
    }

    /// Frees all blocks of a layer, and removes it. The layer must not be in use any more.
    ///
    /// # Errors
    /// As [`Shard::unmap`].
    pub(crate) async fn drop_layer(&self, layer: LayerId) -> Result<()> {
        self.dropping_layers.borrow_mut().insert(layer);
        self.unmap_layer(WriteClass::Freeing, layer, 0, format::limits::LAYER_BLOCKS_MAX).await?;
        self.forget_layer(layer).await
    }

    /// Removes an empty layer.
    async fn forget_layer(&self, layer: LayerId) -> Result<()> {
        self.dropping_layers.borrow_mut().insert(layer);
        // Its blocks may have been queued for a move before.
        self.log.wait_for_queued().await;
        self.unpinned.until(|| (!self.ledger.map.borrow().is_pinned(layer)).then_some(())).await;
        if !self.layers().contains(&layer) {
            return Ok(());
        }
        let request = Request {
            items: SmallVec::from_elem(Item::DropLayer { layer }, 1),
            data: SmallVec::new(),
            effect: Effect::Nothing,
            reply: None,
        };
        self.log.commit(WriteClass::Freeing, request).await.map(|_| ())
    }
}

/// Returns the ranges of consecutive true flags.
fn runs_of(flags: &[bool]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for at in (0u64..).zip(flags).filter(|(_, flag)| **flag).map(|(at, _)| at) {
        match runs.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}
