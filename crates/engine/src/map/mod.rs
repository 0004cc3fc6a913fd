//! The map: which block of which layer lies where.
//!
//! Owns the radix trees of one shard's layers as far as they are in memory, which nodes are dirty, and the frozen
//! state that a running checkpoint writes. All of it is plain state: whoever needs a node that is not in memory gets
//! told which block to read ([`MissingNode`]) and comes back with it.
//!
//! Always true (numbers as in docs/invariants.md):
//! - M1: the ancestors of a dirty node are dirty, so a checkpoint that writes all dirty nodes bottom-up reaches them.
//! - M2: a clean node equals what its parent's entry points to; nothing but clean, unpinned, childless nodes is evicted.
//! - M3: while a checkpoint runs, every node dirty at its start keeps that content until it is handed out to be written.
//! - M4: an entry of an inner node changes only when its child was written, or turned out empty, never by user writes.
//! - M5: a shortcut through layers passes none that has the block.
//!
//! Must not know: drives, the log, who asks.

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

/// Bits of a block number that one level of the tree resolves.
const LEVEL_BITS: u32 = NODE_ENTRIES.ilog2();

/// A tree's root and size.
#[derive(Clone, Debug)]
struct Layer {
    /// Levels; 0 for a layer without a tree.
    height: u8,
    /// The root node, if it is in memory.
    root: Option<NodeRef>,
    /// Where the root was last written.
    root_entry: MapEntry,
    /// Entries that point to blocks.
    stored: u64,
}

/// A node that must be read before the walk can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MissingNode {
    /// The layer.
    pub(crate) layer: LayerId,
    /// Level of the node, 0 for a leaf.
    pub(crate) level: u8,
    /// Number of the node within its level.
    pub(crate) index: u64,
}

/// A shard's map.
pub(crate) struct Map {
    layers: BTreeMap<LayerId, Layer>,
    /// The entry of every block of a layer that is not among these.
    unlisted: MapEntry,
    nodes: Nodes,
    /// Nodes wanted in memory at most; passed when nothing can be evicted.
    budget: usize,
    /// Nodes that may become dirty between two checkpoints: what one can store.
    dirty_max: usize,
    /// Rises with every checkpoint. A node is dirty in the current period or in the one being written.
    period: u64,
    /// Nodes that became dirty in the current period.
    dirty: Vec<NodeRef>,
    /// What the running checkpoint has still to write.
    freeze: Option<checkpoint::FrozenMap>,
    /// Nodes being read, and who waits for them.
    loading: HashMap<MissingNode, Rc<WaitList>>,
    /// Layers dropped while a checkpoint runs.
    dropped: Vec<LayerId>,
    layer_tree: layer_tree::LayerTree,
    shortcuts: shortcut::Shortcuts,
    reservations: reservation::Reservations,
    hand: usize,
}

impl Map {
    /// An empty map that wants to keep at most `budget` nodes of 4 KiB in memory, and at most `dirty_max` of them dirty.
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
            dropped: Vec::new(),
            layer_tree: layer_tree::LayerTree::default(),
            shortcuts: shortcut::Shortcuts::new(budget),
            reservations: reservation::Reservations::default(),
            hand: 0,
        }
    }

    /// Adds a layer as a checkpoint stored it, or where one went.
    pub(crate) fn restore_layer(&mut self, entry: &LayerEntry) {
        let record = match entry {
            LayerEntry::Layer(record) => record,
            LayerEntry::Merged(record) => return self.layer_tree.restore(record),
        };
        let layer =
            Layer { height: record.height, root: None, root_entry: record.root, stored: record.stored };
        let old = self.layers.insert(record.layer, layer);
        assert!(old.is_none(), "layer {} restored twice", record.layer);
    }

    /// The layers that exist.
    pub(crate) fn layer_ids(&self) -> Vec<LayerId> {
        self.layers.keys().copied().collect()
    }

    /// Blocks that `layer` stores.
    pub(crate) fn stored(&self, layer: LayerId) -> u64 {
        self.layers.get(&layer).map_or(0, |layer| layer.stored)
    }

    /// Forgets a layer that stores nothing, with [`Map::forget_dropped`]. No segment is newer than `newest`.
    pub(crate) fn drop_layer(&mut self, layer: LayerId, newest: Incarnation) {
        self.dropped.push(layer);
        self.end_layer(layer, newest);
    }

    /// Lets what a leaf of a layer has go over to the leaf of another one that covers the same blocks, except where that has something
    /// itself. Gives the entries that are nobody's any more.
    ///
    /// # Panics
    /// If the leaves do not cover the same blocks.
    pub(crate) fn merge_leaf(&mut self, from: NodeRef, into: NodeRef) -> Vec<MapEntry> {
        assert_eq!(self.nodes[from].index, self.nodes[into].index, "leaves of the same blocks are merged");
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

    /// Forgets the layers that were dropped, unless a running checkpoint still writes them. Gives the places of their
    /// nodes, which nothing points to any more.
    ///
    /// # Panics
    /// If one still stores blocks: they would never be freed.
    pub(crate) fn forget_dropped(&mut self) -> Vec<MapEntry> {
        let mut places = Vec::new();
        if self.freeze.is_some() {
            return places;
        }
        for layer in std::mem::take(&mut self.dropped) {
            let Some(dropped) = self.layers.remove(&layer) else { continue };
            assert_eq!(dropped.stored, 0, "layer {layer} dropped while it stores blocks");
            // Every stored node had a block, whose unmapping made it and its ancestors dirty: all are in memory (M1).
            places.push(dropped.root_entry);
            let nodes = &self.nodes;
            self.dirty.retain(|at| nodes[*at].layer != layer);
            self.nodes.remove_layer(layer, &mut places);
        }
        places.retain(|entry| entry.address().is_some());
        places
    }

    /// Nodes in memory.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes that differ from what is stored, those of a running checkpoint included.
    pub(crate) fn dirty_count(&self) -> usize {
        self.dirty.len() + self.freeze.as_ref().map_or(0, checkpoint::FrozenMap::remaining)
    }

    /// Where nodes are stored, as far as the nodes in memory say: all of them after a walk that read all.
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

    /// Nodes that may become dirty between two checkpoints.
    pub(crate) fn dirty_max(&self) -> usize {
        self.dirty_max
    }

    /// Nodes that became dirty since the last checkpoint began.
    pub(crate) fn dirtied(&self) -> usize {
        self.dirty.len()
    }

    /// True if so much is dirty that a checkpoint could not store it, or that the map outgrows its budget: writers wait
    /// for a checkpoint.
    pub(crate) fn is_over_budget(&self) -> bool {
        self.dirty.len() > self.dirty_max
            || self.nodes.len() > self.budget && self.dirty_count() > self.budget / 2
    }

    /// True if a checkpoint should begin, so that nobody has to wait for it.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        self.dirty.len() > self.dirty_max / 4 * 3
            || self.nodes.len() > self.budget && self.dirty_count() > self.budget / 4
    }

    /// True if somebody will soon have to wait for a checkpoint.
    pub(crate) fn is_checkpoint_urgent(&self) -> bool {
        self.dirty.len() > self.dirty_max / 8 * 7
            || self.nodes.len() > self.budget && self.dirty_count() > self.budget / 8 * 3
    }

    /// Changes a leaf's entry and gives the old one. The leaf was pinned by a walk.
    pub(crate) fn replace(&mut self, leaf: NodeRef, slot: usize, entry: MapEntry) -> MapEntry {
        let old = self.set(leaf, slot, entry);
        // A write that was queued when its layer was put below another one.
        if old.is_absent()
            && !entry.is_absent()
            && !self.shortcuts.is_empty()
            && self.layer_tree.has_child_layer(self.nodes[leaf].layer)
        {
            self.shortcuts.forget();
        }
        old
    }

    fn set(&mut self, leaf: NodeRef, slot: usize, entry: MapEntry) -> MapEntry {
        self.touch(leaf);
        let node = &mut self.nodes[leaf];
        assert_eq!(node.level, 0, "M4: only leaves change by writes");
        let id = node.layer;
        let old = node.swap(slot, entry);
        if old.address().is_some() != entry.address().is_some()
            && let Some(layer) = self.layers.get_mut(&id)
        {
            let before = layer.stored;
            layer.stored = if entry.address().is_some() { before + 1 } else { before - 1 };
            self.reservations.stored(id, before, layer.stored);
        }
        old
    }

    /// The entry in a leaf's slot.
    pub(crate) fn entry(&self, leaf: NodeRef, slot: usize) -> MapEntry {
        self.nodes[leaf].entry(slot)
    }

    /// First block that a leaf covers.
    pub(crate) fn leaf_start(&self, leaf: NodeRef) -> u64 {
        self.nodes[leaf].index << LEVEL_BITS
    }

    /// Pins nodes that are pinned already once more.
    pub(crate) fn repin(&mut self, nodes: &[NodeRef]) {
        for node in nodes {
            let node = &mut self.nodes[*node];
            assert!(node.pins > 0, "only what is pinned is pinned again");
            node.pins += 1;
        }
    }

    /// Takes back pins that a walk set.
    pub(crate) fn unpin(&mut self, nodes: &[NodeRef]) {
        for node in nodes {
            let node = &mut self.nodes[*node];
            assert!(node.pins > 0, "a node that is not pinned was unpinned");
            node.pins -= 1;
        }
    }

    /// Marks a node and its ancestors dirty in the current period, keeping what a running checkpoint must still write.
    fn touch(&mut self, node: NodeRef) {
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

/// The slot of `block` in a node of `level`.
#[allow(clippy::cast_possible_truncation)]
fn slot_at(block: u64, level: u8) -> usize {
    (block >> (LEVEL_BITS * u32::from(level))) as usize % NODE_ENTRIES
}

/// Number of the node of `level` that covers `block`.
fn index_at(block: u64, level: u8) -> u64 {
    block >> (LEVEL_BITS * (u32::from(level) + 1))
}

/// Levels that a tree needs to reach `block`.
fn height_for(block: u64) -> u8 {
    let mut height = 1;
    while index_at(block, height - 1) > 0 {
        height += 1;
    }
    height
}

#[cfg(test)]
mod tests;
