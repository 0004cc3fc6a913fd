//! Giving up a layer: what it holds goes to the layer above it, or away.

use std::ops::Range;
use std::rc::Rc;

use format::{Item, LayerBlock, LayerId, NODE_ENTRIES, UnmapMode};
use smallvec::SmallVec;

use super::walk::pin_leaves;
use super::{LEAF_BLOCKS, Shard};
use crate::error::Result;
use crate::log::{Effect, Request, WriteClass};
use crate::map::Pins;

/// Leaves that one record merges at most.
const MERGE_LEAVES: usize = 64;
/// Runs of blocks that one record purges at most: their items fit one header block.
const PURGE_RUNS: usize = 128;

impl Shard {
    /// Lets everything that `from` holds go to `into`, the only layer above it, except what that has overwritten, and forgets
    /// `from`. Nobody writes to `from` any more; `into` is in use. No data is moved.
    ///
    /// # Errors
    /// As [`Shard::unmap`]; may be called again then.
    pub(crate) async fn merge_layer(self: &Rc<Self>, from: LayerId, into: LayerId) -> Result<()> {
        let mut next = 0;
        let end = format::limits::LAYER_BLOCKS_MAX;
        loop {
            self.check_stopping()?;
            self.make_room_in_map().await?;
            let Some(found) = self.walk(|map| map.next_leaf(from, next, end)).await? else { break };
            next = self.merge_piece(from, into, found).await?;
        }
        self.forget_layer(from).await
    }

    /// Merges leaves from the one of `block` on; gives where the next ones begin.
    async fn merge_piece(&self, from: LayerId, into: LayerId, block: u64) -> Result<u64> {
        // A share of what may be dirty between two checkpoints: two leaves each, and what is above them.
        let leaves = (self.ledger.map.borrow().dirty_max() / 32).clamp(1, MERGE_LEAVES) as u64;
        let leaf = NODE_ENTRIES as u64;
        let start = block / leaf * leaf;
        // A layer of the largest size ends within the last piece.
        let count = (leaves * leaf).min(format::limits::LAYER_BLOCKS_MAX - start);
        let from_leaves = self.prepare_unmap(from, start, count).await?;
        let into_leaves = match self.leaves_above(&from_leaves, into).await {
            Ok(pins) => pins,
            Err(error) => {
                self.unpin(&from_leaves);
                return Err(error);
            }
        };
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let request = Request {
            items: SmallVec::from_elem(Item::Merge { from, into, block: LayerBlock::new(start), count }, 1),
            data: SmallVec::new(),
            effect: Effect::Merge { from: from_leaves, into: into_leaves },
            reply: None,
        };
        self.log.commit(WriteClass::Freeing, request).await?;
        Ok(start + u64::from(count))
    }

    /// Pins the leaves of `into` that cover the same blocks, making those that do not exist.
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

    /// Frees what a layer holds that none of the layers above it shows; they are all of those. Nobody uses the layer itself any more.
    ///
    /// # Errors
    /// As [`Shard::unmap`].
    pub(crate) async fn purge_layer(&self, layer: LayerId, above: &[LayerId]) -> Result<()> {
        let mut next = 0;
        let end = format::limits::LAYER_BLOCKS_MAX;
        while let Some(found) = self.walk(|map| map.next_leaf(layer, next, end)).await? {
            self.check_stopping()?;
            self.make_room_in_map().await?;
            let leaf = found / LEAF_BLOCKS * LEAF_BLOCKS;
            next = leaf + LEAF_BLOCKS;
            // What is covered stays so: layers above lose nothing while there is something below.
            let covered = self.covered(layer, above, leaf, NODE_ENTRIES).await?;
            let runs = runs_of(&covered);
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

    /// Frees everything that a layer holds, and forgets it. Nobody may use the layer any more.
    ///
    /// # Errors
    /// As [`Shard::unmap`].
    pub(crate) async fn drop_layer(&self, layer: LayerId) -> Result<()> {
        self.dying.borrow_mut().insert(layer);
        self.unmap_layer(WriteClass::Freeing, layer, 0, format::limits::LAYER_BLOCKS_MAX).await?;
        self.forget_layer(layer).await
    }

    /// Forgets a layer that holds nothing any more.
    async fn forget_layer(&self, layer: LayerId) -> Result<()> {
        self.dying.borrow_mut().insert(layer);
        // Blocks of it that were being moved when it began to die.
        self.log.settle().await;
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

/// Where runs of true begin and end.
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
