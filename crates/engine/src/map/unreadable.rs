//! Unreadable nodes and layers in a map that is only inspected.
//!
//! Always true: a block of an unreadable node or layer has an unknown entry, never an absent one,
//! so it cannot be mistaken for a hole. Only the verifier and salvage use this; a map in service
//! has no unknown entries.

use format::{LayerId, MapEntry, Mapping};

use super::walk::{WalkEnd, slot_of_index, subtree_end};
use super::{LEVEL_BITS, Layer, Map, MissingNode, NodeRef, height_for, index_at};

/// A run of entries of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryRun {
    /// The entries of one leaf, up to its end.
    Leaf,
    /// One entry for all blocks below `until`: absent, zero or unknown.
    Same {
        /// First block after the run.
        until: u64,
        /// The entry.
        entry: MapEntry,
    },
}

impl MissingNode {
    /// First block covered by the node.
    pub(crate) fn first_block(self) -> u64 {
        super::walk::first_block(self)
    }

    /// Number of blocks covered by the node.
    pub(crate) fn blocks(self) -> u64 {
        1 << (LEVEL_BITS * (u32::from(self.level) + 1))
    }

    /// Returns the node of `level` that covers a block of a layer.
    pub(crate) fn covering(layer: LayerId, block: u64, level: u8) -> Self {
        Self { layer, level, index: index_at(block, level) }
    }
}

impl Map {
    /// Marks all blocks of an unreadable node as unknown. Returns the replaced entry; `None` if no
    /// entry points to the node.
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

    /// Marks all blocks of unlisted layers as unknown, because part of the layer table is
    /// unreadable.
    pub(crate) fn mark_unlisted_unreadable(&mut self) {
        self.unlisted = MapEntry::UNKNOWN;
    }

    /// Creates a layer with unknown contents.
    pub(super) fn unknown_layer(&self) -> Layer {
        let height = height_for(format::limits::LAYER_BLOCKS_MAX - 1);
        Layer { height, root: None, root_entry: MapEntry::UNKNOWN, stored: 0 }
    }

    /// Returns the run of entries at `block`.
    ///
    /// # Errors
    /// The node to load first.
    pub(crate) fn entry_run(&mut self, layer: LayerId, block: u64) -> Result<EntryRun, MissingNode> {
        match self.reach(layer, block) {
            WalkEnd::Node(_) => Ok(EntryRun::Leaf),
            WalkEnd::Unread(load) => Err(load),
            WalkEnd::Nothing { level, entry } => {
                assert!(
                    !matches!(entry.mapping(), Mapping::Block { .. }),
                    "M4: a run without a node holds no blocks"
                );
                Ok(EntryRun::Same { until: subtree_end(block, level), entry })
            }
        }
    }

    /// Replaces an entry of a pinned leaf without updating the counts, which are wrong in a damaged
    /// map anyway. Returns the old entry.
    pub(crate) fn put_uncounted(&mut self, leaf: NodeRef, slot: usize, entry: MapEntry) -> MapEntry {
        self.mark_dirty(leaf);
        self.nodes[leaf].swap(slot, entry)
    }

    /// Removes a layer even if it still stores blocks.
    pub(crate) fn forget_layer(&mut self, layer: LayerId) {
        if self.layers.remove(&layer).is_none() {
            return;
        }
        let nodes = &self.nodes;
        self.dirty.retain(|at| nodes[*at].layer != layer);
        self.nodes.remove_layer(layer, &mut Vec::new());
    }
}
