//! The map from blocks of layers to addresses.
//!
//! Owns the in-memory part of the radix trees of one shard's layers, their dirty state, and the
//! frozen state of a running checkpoint. Plain state: an operation that needs a node that is not in
//! memory returns it as a [`MissingNode`]; the caller loads the node and retries.
//!
//! Always true (docs/invariants.md):
//! - M1: the ancestors of a dirty node are dirty, so a checkpoint that writes all dirty nodes
//!   bottom-up reaches them.
//! - M2: a clean node equals its stored image. Only clean, unpinned, childless nodes that no walk
//!   holds are evicted.
//! - M3: during a checkpoint, every node dirty at its start keeps its frozen content until the
//!   content is taken for writing.
//! - M4: an entry of an inner node changes only when its child is stored or found empty, never by
//!   client writes.
//! - M5: a shortcut does not skip a layer that holds the block.
//!
//! Must not know: drives, the log, the origin of an operation.

mod checkpoint;
mod evict;
mod layer_tree;
mod node;
mod reservation;
mod shortcut;
mod unreadable;
mod walk;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use format::{Incarnation, LayerEntry, LayerId, MapEntry, NODE_ENTRIES};
use reactor::WaitList;

pub(crate) use checkpoint::NodeImage;
pub(crate) use layer_tree::ChainPins;
pub(crate) use node::NodeRef;
use node::{Node, Nodes};
pub(crate) use unreadable::EntryRun;
pub(crate) use walk::Pins;

/// Bits of a block number resolved by one level of the tree.
const LEVEL_BITS: u32 = NODE_ENTRIES.ilog2();

/// The tree of a layer.
#[derive(Clone, Debug)]
struct Layer {
    /// Number of levels; 0 for an empty layer.
    height: u8,
    /// The root node, if it is in memory.
    root: Option<NodeRef>,
    /// Address of the stored root.
    root_entry: MapEntry,
    /// Number of entries that point to blocks.
    stored: u64,
}

/// A node that must be loaded before a walk can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MissingNode {
    /// Layer of the node.
    pub(crate) layer: LayerId,
    /// Level of the node; 0 for a leaf.
    pub(crate) level: u8,
    /// Number of the node within its level.
    pub(crate) index: u64,
}

/// The map of one shard.
pub(crate) struct Map {
    layers: BTreeMap<LayerId, Layer>,
    /// The entry of all blocks of layers that are not in `layers`.
    unlisted: MapEntry,
    nodes: Nodes,
    /// Maximum number of nodes in memory; exceeded if no node is evictable.
    budget: usize,
    /// Maximum number of nodes dirtied between two checkpoints: as many as a checkpoint can store.
    dirty_max: usize,
    /// Increases with every checkpoint. A node is dirty in the current period or in the one being
    /// written.
    period: u64,
    /// Nodes dirtied in the current period.
    dirty: Vec<NodeRef>,
    /// State of the running checkpoint.
    freeze: Option<checkpoint::FrozenMap>,
    /// Nodes being loaded, and the tasks waiting for each.
    loading: HashMap<MissingNode, Rc<WaitList>>,
    /// Nodes that walks in progress hold, in memory or not, with the number of walks.
    held: HashMap<MissingNode, u32>,
    /// Layers dropped during a checkpoint.
    dropped: Vec<LayerId>,
    layer_tree: layer_tree::LayerTree,
    shortcuts: shortcut::Shortcuts,
    reservations: reservation::Reservations,
    hand: usize,
}

impl Map {
    /// Creates an empty map with a budget of `budget` nodes of 4 KiB in memory and `dirty_max`
    /// dirty nodes.
    pub(crate) fn new(budget: usize, dirty_max: usize) -> Self {
        let budget = budget.clamp(64, usize::MAX / 2);
        Self {
            layers: BTreeMap::new(),
            unlisted: MapEntry::ABSENT,
            nodes: Nodes::default(),
            budget,
            dirty_max,
            period: 1,
            dirty: Vec::new(),
            freeze: None,
            loading: HashMap::new(),
            held: HashMap::new(),
            dropped: Vec::new(),
            layer_tree: layer_tree::LayerTree::default(),
            shortcuts: shortcut::Shortcuts::new(budget),
            reservations: reservation::Reservations::default(),
            hand: 0,
        }
    }

    /// Restores a layer, or the target of a merged layer, from a checkpoint.
    pub(crate) fn restore_layer(&mut self, entry: &LayerEntry) {
        let record = match entry {
            LayerEntry::Layer(record) => record,
            LayerEntry::Merged(record) => return self.layer_tree.restore(record),
        };
        let layer =
            Layer { height: record.height, root: None, root_entry: record.root, stored: record.stored };
        let old = self.layers.insert(record.layer, layer);
        assert!(old.is_none(), "layer {} is restored twice", record.layer);
    }

    /// The existing layers.
    pub(crate) fn layer_ids(&self) -> Vec<LayerId> {
        self.layers.keys().copied().collect()
    }

    /// Number of blocks stored by `layer`.
    pub(crate) fn stored(&self, layer: LayerId) -> u64 {
        self.layers.get(&layer).map_or(0, |layer| layer.stored)
    }

    /// Marks an empty layer for [`Map::forget_dropped`]. No segment is newer than `newest`.
    pub(crate) fn drop_layer(&mut self, layer: LayerId, newest: Incarnation) {
        self.dropped.push(layer);
        self.end_layer(layer, newest);
    }

    /// Moves the entries of a leaf to the leaf of another layer that covers the same blocks, except
    /// where the target has an entry. Returns the superseded entries.
    ///
    /// # Panics
    /// If the leaves cover different blocks.
    pub(crate) fn merge_leaf(&mut self, from: NodeRef, into: NodeRef) -> Vec<MapEntry> {
        assert_eq!(self.nodes[from].index, self.nodes[into].index, "merged leaves cover the same blocks");
        self.begin_merge(self.nodes[from].layer, self.nodes[into].layer);
        self.shortcuts.forget_leaf(self.nodes[from].index);
        let mut superseded = Vec::new();
        for slot in 0..NODE_ENTRIES {
            let entry = self.entry(from, slot);
            if entry.is_absent() {
                continue;
            }
            self.set(from, slot, MapEntry::ABSENT);
            if self.entry(into, slot).is_absent() {
                self.set(into, slot, entry);
            } else {
                superseded.push(entry);
            }
        }
        superseded
    }

    /// Removes dropped layers, unless a running checkpoint is still writing them. Returns the
    /// entries of their stored nodes, which are unreferenced from now on.
    ///
    /// # Panics
    /// If a dropped layer still stores blocks, which would leak.
    pub(crate) fn forget_dropped(&mut self) -> Vec<MapEntry> {
        let mut places = Vec::new();
        if self.freeze.is_some() {
            return places;
        }
        for layer in std::mem::take(&mut self.dropped) {
            let Some(dropped) = self.layers.remove(&layer) else { continue };
            assert_eq!(dropped.stored, 0, "layer {layer} is dropped while it stores blocks");
            // Every stored node held a block. Unmapping it dirtied the node and its ancestors, so
            // all of them are in memory (M1).
            places.push(dropped.root_entry);
            let nodes = &self.nodes;
            self.dirty.retain(|at| nodes[*at].layer != layer);
            self.nodes.remove_layer(layer, &mut places);
        }
        places.retain(|entry| entry.address().is_some());
        places
    }

    /// Number of nodes in memory.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Number of nodes that differ from their stored image, including those of a running
    /// checkpoint.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.len() + self.freeze.as_ref().map_or(0, checkpoint::FrozenMap::remaining)
    }

    /// The stored nodes that nodes in memory point to: all of them after a complete walk.
    pub(crate) fn stored_nodes(&self) -> Vec<(MissingNode, MapEntry)> {
        let roots = self.layers.iter().filter(|(_, layer)| layer.height > 0).map(|(id, layer)| {
            (MissingNode { layer: *id, level: layer.height - 1, index: 0 }, layer.root_entry)
        });
        let inner = self.nodes.iter().filter(|node| node.level > 0);
        let children = inner.flat_map(|node| {
            let child = |slot| MissingNode {
                layer: node.layer,
                level: node.level - 1,
                index: node.index << LEVEL_BITS | slot,
            };
            (0..).map(child).zip(node.entries.iter().copied())
        });
        roots.chain(children).filter(|(_, entry)| entry.address().is_some()).collect()
    }

    /// Maximum number of nodes dirtied between two checkpoints.
    pub(crate) fn dirty_max(&self) -> usize {
        self.dirty_max
    }

    /// Number of nodes dirtied since the last checkpoint started.
    pub(crate) fn dirtied(&self) -> usize {
        self.dirty.len()
    }

    /// Returns true if writers must wait for a checkpoint, because it could not store more dirty
    /// nodes or the map exceeds its memory budget.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.dirty.len() > self.dirty_max
            || self.nodes.len() > self.budget && self.dirty_count() > self.budget / 2
    }

    /// Returns true if a checkpoint should start, so that no writer has to wait.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        self.dirty.len() > self.dirty_max / 4 * 3
            || self.nodes.len() > self.budget && self.dirty_count() > self.budget / 4
    }

    /// Returns true if writers will soon have to wait for a checkpoint.
    pub(crate) fn is_checkpoint_urgent(&self) -> bool {
        self.dirty.len() > self.dirty_max / 8 * 7
            || self.nodes.len() > self.budget && self.dirty_count() > self.budget / 8 * 3
    }

    /// Replaces the entry of a pinned leaf and returns the old one.
    pub(crate) fn replace(&mut self, leaf: NodeRef, slot: usize, entry: MapEntry) -> MapEntry {
        let old = self.set(leaf, slot, entry);
        // A write that was queued when its layer got a child.
        if old.is_absent()
            && !entry.is_absent()
            && !self.shortcuts.is_empty()
            && self.layer_tree.has_child_layer(self.nodes[leaf].layer)
        {
            self.shortcuts.clear();
        }
        old
    }

    fn set(&mut self, leaf: NodeRef, slot: usize, entry: MapEntry) -> MapEntry {
        self.mark_dirty(leaf);
        let node = &mut self.nodes[leaf];
        assert_eq!(node.level, 0, "M4: writes change only leaves");
        assert!(node.pins > 0, "M2: a leaf is pinned while it changes");
        let id = node.layer;
        let old = node.swap(slot, entry);
        if old.address().is_some() != entry.address().is_some() {
            let Some(layer) = self.layers.get_mut(&id) else {
                panic!("the layer {id} of a leaf does not exist")
            };
            let before = layer.stored;
            layer.stored = if entry.address().is_some() { before + 1 } else { before - 1 };
            self.reservations.stored(id, before, layer.stored);
        }
        old
    }

    /// Returns the entry in a leaf's slot.
    pub(crate) fn entry(&self, leaf: NodeRef, slot: usize) -> MapEntry {
        self.nodes[leaf].entry(slot)
    }

    /// First block covered by a leaf.
    pub(crate) fn leaf_start(&self, leaf: NodeRef) -> u64 {
        self.nodes[leaf].index << LEVEL_BITS
    }

    /// Adds a pin to nodes that are already pinned.
    pub(crate) fn repin(&mut self, nodes: &[NodeRef]) {
        for node in nodes {
            let node = &mut self.nodes[*node];
            assert!(node.pins > 0, "only a pinned node gets another pin");
            node.pins += 1;
        }
    }

    /// Removes pins set by a walk.
    pub(crate) fn unpin(&mut self, nodes: &[NodeRef]) {
        for node in nodes {
            let node = &mut self.nodes[*node];
            assert!(node.pins > 0, "an unpinned node has a pin");
            node.pins -= 1;
        }
    }

    /// Marks a node and its ancestors as dirty in the current period, and saves frozen content that
    /// a running checkpoint must still write.
    fn mark_dirty(&mut self, node: NodeRef) {
        let mut next = Some(node);
        while let Some(at) = next {
            let period = self.period;
            let node = &mut self.nodes[at];
            match node.dirty {
                Some(dirty) if dirty == period => return,
                Some(_) => node.frozen = Some(node.entries.clone()),
                None => {}
            }
            node.dirty = Some(period);
            next = node.parent;
            self.dirty.push(at);
        }
    }
}

/// Slot of `block` in a node of `level`.
#[allow(clippy::cast_possible_truncation)]
fn slot_at(block: u64, level: u8) -> usize {
    (block >> (LEVEL_BITS * u32::from(level))) as usize % NODE_ENTRIES
}

/// Number of the node of `level` that covers `block`.
fn index_at(block: u64, level: u8) -> u64 {
    block >> (LEVEL_BITS * (u32::from(level) + 1))
}

/// Number of levels a tree needs to cover `block`.
fn height_for(block: u64) -> u8 {
    let mut height = 1;
    while index_at(block, height - 1) > 0 {
        height += 1;
    }
    height
}

#[cfg(test)]
mod tests;
