//! Counts the blocks of layers, and compares layers. Reads the map only; blocks may change
//! meanwhile.

use format::{LayerId, MapEntry};
use reactor::Reactor;
use smallvec::SmallVec;

use super::{LEAF_BLOCKS, Shard};
use crate::error::Result;
use crate::invariant::to_index;

/// The number of blocks of a layer in a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerUsage {
    /// Visible blocks: its own, and those of parent layers that it does not hide.
    pub(crate) referenced: u64,
    /// Exclusive blocks: visible through no other layer.
    pub(crate) exclusive: u64,
}

/// A layer directly above another one.
#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) layer: LayerId,
    /// The children of a child that is being deleted: its blocks count only if one of them shows
    /// them.
    pub(crate) deleting: Option<Vec<Child>>,
}

/// An ancestor that is being deleted. Its blocks that are visible only through the counted layer
/// are charged to that layer.
#[derive(Clone, Debug)]
pub(crate) struct Ancestor {
    pub(crate) layer: LayerId,
    /// The other layers directly above it.
    pub(crate) siblings: Vec<Child>,
}

/// The layers above and below a layer that is counted.
#[derive(Clone, Debug)]
pub(crate) struct LayerNeighbours {
    /// All layers directly above it.
    pub(crate) children: Vec<Child>,
    /// The ancestors directly below it that are being deleted, from the top down.
    pub(crate) ancestors: Vec<Ancestor>,
}

/// A run of blocks that differ between two layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChangedRun {
    pub(crate) block: u64,
    pub(crate) count: u64,
    /// True if the blocks hold data in the compared layer; otherwise they read as zeros.
    pub(crate) data: bool,
}

impl Shard {
    /// Counts blocks `from..end` of a layer.
    ///
    /// # Errors
    /// Errors of map reads.
    pub(crate) async fn layer_usage(
        &self,
        layer: LayerId,
        around: &LayerNeighbours,
        from: u64,
        end: u64,
    ) -> Result<LayerUsage> {
        let mut held = LayerUsage::default();
        let mut next = from;
        while let Some(found) = self.next_leaf_through(layer, next, end).await? {
            let (count, until) = within_leaf(found, end);
            let mut shown = SmallVec::new();
            self.walk_chain((layer, found, count), |map| {
                shown.clear();
                map.lookup_through(layer, found, count, &mut shown)
            })
            .await?;
            held.referenced += shown.iter().filter(|entry| entry.address().is_some()).count() as u64;
            held.exclusive += self.exclusive_blocks(layer, around, found, count).await?;
            next = until;
            Reactor::current().yield_now().await;
        }
        Ok(held)
    }

    /// Returns how many of these blocks are exclusive to a layer.
    async fn exclusive_blocks(
        &self,
        layer: LayerId,
        around: &LayerNeighbours,
        block: u64,
        count: usize,
    ) -> Result<u64> {
        // A block hidden by every child is exclusive to the layer on the way down, until another
        // layer shows it too.
        let mut open = self.hidden(&around.children, block, count).await?;
        let mut exclusive = 0;
        let none = Vec::new();
        let below = around.ancestors.iter().map(|ancestor| (ancestor.layer, &ancestor.siblings));
        for (layer, siblings) in std::iter::once((layer, &none)).chain(below) {
            let siblings = self.hidden(siblings, block, count).await?;
            let stored = self.has_entries(&[layer], block, count, |entry| entry.address().is_some()).await?;
            let has = self.has_entries(&[layer], block, count, |entry| !entry.is_absent()).await?;
            for (open, ((siblings, stored), has)) in
                open.iter_mut().zip(siblings.iter().zip(&stored).zip(&has))
            {
                *open &= *siblings;
                exclusive += u64::from(*open && *stored);
                *open &= !has;
            }
        }
        Ok(exclusive)
    }

    /// Returns which blocks are hidden by each of these layers, the ones directly above another.
    async fn hidden(&self, above: &[Child], block: u64, count: usize) -> Result<Vec<bool>> {
        let mut hidden = vec![true; count];
        for above in above {
            let mut by_child =
                self.has_entries(&[above.layer], block, count, |entry| !entry.is_absent()).await?;
            if let Some(further) = &above.deleting {
                let by_descendants = Box::pin(self.hidden(further, block, count)).await?;
                by_child
                    .iter_mut()
                    .zip(&by_descendants)
                    .for_each(|(by_child, by_descendants)| *by_child |= by_descendants);
            }
            hidden.iter_mut().zip(&by_child).for_each(|(hidden, by_child)| *hidden &= by_child);
        }
        Ok(hidden)
    }

    /// Returns which blocks a layer stores that no layer above it shows; `above` are all layers
    /// directly above it.
    pub(super) async fn stored_and_hidden(
        &self,
        layer: LayerId,
        above: &[LayerId],
        block: u64,
        count: usize,
    ) -> Result<Vec<bool>> {
        let mut stored_and_hidden =
            self.has_entries(&[layer], block, count, |entry| entry.address().is_some()).await?;
        for above in above {
            let by_child = self.has_entries(&[*above], block, count, |entry| !entry.is_absent()).await?;
            stored_and_hidden
                .iter_mut()
                .zip(&by_child)
                .for_each(|(stored_and_hidden, by_child)| *stored_and_hidden &= by_child);
        }
        Ok(stored_and_hidden)
    }

    /// Returns the runs in `from..end` in which a layer differs from another one: where one of
    /// `between` has an entry. These are the layers that are in the chain of exactly one of the
    /// two.
    ///
    /// # Errors
    /// Errors of map reads.
    pub(crate) async fn changed(
        &self,
        layer: LayerId,
        between: &[LayerId],
        from: u64,
        end: u64,
    ) -> Result<Vec<ChangedRun>> {
        let mut all: Vec<ChangedRun> = Vec::new();
        let mut next = from;
        while let Some(found) = self.next_leaf_of(between, next, end).await? {
            let (count, until) = within_leaf(found, end);
            let changed = self.has_entries(between, found, count, |entry| !entry.is_absent()).await?;
            let mut shown = SmallVec::new();
            self.walk_chain((layer, found, count), |map| {
                shown.clear();
                map.lookup_through(layer, found, count, &mut shown)
            })
            .await?;
            for (block, (_, entry)) in
                (found..).zip(changed.iter().zip(&shown)).filter(|(_, (changed, _))| **changed)
            {
                let data = entry.address().is_some();
                match all.last_mut() {
                    Some(last) if last.block + last.count == block && last.data == data => last.count += 1,
                    _ => all.push(ChangedRun { block, count: 1, data }),
                }
            }
            next = until;
            Reactor::current().yield_now().await;
        }
        Ok(all)
    }

    /// Returns the first block from `from` on, below `end`, that has a leaf in one of these layers.
    async fn next_leaf_of(&self, layers: &[LayerId], from: u64, end: u64) -> Result<Option<u64>> {
        loop {
            let changes = self.ledger.map.borrow().tree_version();
            let mut first = None;
            for layer in layers {
                let before = first.unwrap_or(end);
                first = self.walk(|map| map.next_leaf(*layer, from, before)).await?.or(first);
            }
            if self.ledger.map.borrow().tree_version() == changes {
                return Ok(first);
            }
        }
    }

    /// Returns for which blocks one of these layers has an entry that `counts`.
    async fn has_entries(
        &self,
        layers: &[LayerId],
        block: u64,
        count: usize,
        counts: impl Fn(&MapEntry) -> bool,
    ) -> Result<Vec<bool>> {
        loop {
            let changes = self.ledger.map.borrow().tree_version();
            let mut has = vec![false; count];
            for layer in layers {
                let mut entries = SmallVec::new();
                self.walk(|map| map.lookup(*layer, block, count, &mut entries)).await?;
                has.iter_mut().zip(&entries).for_each(|(has, entry)| *has |= counts(entry));
            }
            if self.ledger.map.borrow().tree_version() == changes {
                return Ok(has);
            }
        }
    }
}

/// Returns the number of blocks from `block` to the end of its leaf or of the range, and that end.
fn within_leaf(block: u64, end: u64) -> (usize, u64) {
    let until = ((block / LEAF_BLOCKS + 1) * LEAF_BLOCKS).min(end);
    (to_index(until - block), until)
}
