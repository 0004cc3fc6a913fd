//! Nodes and layers that cannot be read, in a map that is only looked at.
//!
//! Always true: a block whose node or layer cannot be read has an unknown entry, never an absent one, so that nobody takes it for a
//! hole. Used by the verifier and by salvage alone: a map in service has no unknown entry.

use format::{LayerId, MapEntry, Mapping};

use super::walk::{WalkEnd, slot_of_index, subtree_end};
use super::{LEVEL_BITS, Layer, Map, MissingNode, NodeRef, height_for, index_at};

/// The entries of a layer from some block on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryRun {
    /// The entries of one leaf, up to its end.
    Leaf,
    /// The same entry for every block below `until`: absent, zero or unknown.
    Same {
        /// The first block behind the stretch.
        until: u64,
        /// The entry.
        entry: MapEntry,
    },
}

impl MissingNode {
    /// The first block that the node covers.
    pub(crate) fn first_block(self) -> u64 {
        super::walk::first_block(self)
    }

    /// The number of blocks that the node covers.
    pub(crate) fn blocks(self) -> u64 {
        1 << (LEVEL_BITS * (u32::from(self.level) + 1))
    }

    /// The node of `level` that covers a block of a layer.
    pub(crate) fn covering(layer: LayerId, block: u64, level: u8) -> Self {
        Self { layer, level, index: index_at(block, level) }
    }
}

impl Map {
    /// Marks everything below a node that cannot be read as unknown. Gives the entry that leads to the node; `None` if nothing
    /// leads there any more.
    pub(crate) fn mark_unreadable(&mut self, node: MissingNode) -> Option<MapEntry> {
        let layer = self.layers.get_mut(&node.layer)?;
        let old = if node.level + 1 == layer.height {
            std::mem::replace(&mut layer.root_entry, MapEntry::UNKNOWN)
        } else {
            let parent = self.find(node.layer, node.level + 1, node.index >> LEVEL_BITS)?;
            self.nodes[parent].swap(slot_of_index(node.index), MapEntry::UNKNOWN)
        };
        old.address().map(|_| old)
    }

    /// Marks every block of the layers that are not listed as unknown: a part of the layer table cannot be read.
    pub(crate) fn mark_unlisted_unreadable(&mut self) {
        self.unlisted = MapEntry::UNKNOWN;
    }

    /// A layer of which nothing is known.
    pub(super) fn unknown_layer(&self) -> Layer {
        let height = height_for(format::limits::LAYER_BLOCKS_MAX - 1);
        Layer { height, root: None, root_entry: MapEntry::UNKNOWN, stored: 0 }
    }

    /// The entries from `block` on.
    ///
    /// # Errors
    /// A node to be read first.
    pub(crate) fn entry_run(&mut self, layer: LayerId, block: u64) -> Result<EntryRun, MissingNode> {
        match self.reach(layer, block) {
            WalkEnd::Node(_) => Ok(EntryRun::Leaf),
            WalkEnd::Unread(load) => Err(load),
            WalkEnd::Nothing { level, entry } => {
                assert!(!matches!(entry.mapping(), Mapping::Block { .. }), "M4: a stretch without a node");
                Ok(EntryRun::Same { until: subtree_end(block, level), entry })
            }
        }
    }

    /// Changes an entry of a leaf without a look at what is counted: the counts of a damaged map are wrong anyway. The leaf was
    /// pinned by a walk. Gives the old entry.
    pub(crate) fn put_uncounted(&mut self, leaf: NodeRef, slot: usize, entry: MapEntry) -> MapEntry {
        self.touch(leaf);
        self.nodes[leaf].swap(slot, entry)
    }

    /// Forgets a layer, whatever it still stores.
    pub(crate) fn forget_layer(&mut self, layer: LayerId) {
        if self.layers.remove(&layer).is_none() {
            return;
        }
        let nodes = &self.nodes;
        self.dirty.retain(|at| nodes[*at].layer != layer);
        self.nodes.remove_layer(layer, &mut Vec::new());
    }
}
