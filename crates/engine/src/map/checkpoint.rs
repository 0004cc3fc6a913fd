//! Checkpoint support of the map: a snapshot of one state, written bottom-up while writes continue.
//!
//! [`Map::freeze`] only swaps the list of dirty nodes. After that, the first change to a node that
//! is not yet written saves a copy of its frozen content (M3). [`Map::take_level`] returns the
//! images of one level; after each is stored, [`Map::node_stored`] updates its parent's pointer, in
//! both the frozen and the live state.

use std::collections::BTreeMap;

use format::{LayerEntry, LayerId, LayerRecord, MapEntry, MergedRecord, NODE_ENTRIES};

use super::walk::first_block;
use super::{Map, MissingNode, Node, NodeRef, index_at};

/// A node's content to be stored, or the information that the node is empty.
pub(crate) struct NodeImage {
    /// The node; pinned until [`Map::node_stored`].
    pub(crate) node: NodeRef,
    /// Layer of the node.
    pub(crate) layer: LayerId,
    /// Level of the node.
    pub(crate) level: u8,
    /// Number of the node within its level.
    pub(crate) index: u64,
    /// Content to store; `None` if the node is empty.
    pub(crate) entries: Option<Box<[MapEntry; NODE_ENTRIES]>>,
}

/// The layers at the freeze, with their roots updated as nodes are stored, and the merged layers.
pub(crate) type FrozenLayers = Vec<LayerEntry>;

struct FrozenLayer {
    record: LayerRecord,
    root: Option<NodeRef>,
}

/// Frozen state of a running checkpoint.
pub(super) struct FrozenMap {
    /// Period of the dirty nodes being written.
    period: u64,
    layers: BTreeMap<LayerId, FrozenLayer>,
    merged: Vec<MergedRecord>,
    /// Nodes that [`Map::take_level`] has not returned yet, by level.
    levels: Vec<Vec<NodeRef>>,
}

impl FrozenMap {
    pub(super) fn remaining(&self) -> usize {
        self.levels.iter().map(Vec::len).sum()
    }
}

impl Map {
    /// Freezes the map for a checkpoint.
    ///
    /// # Panics
    /// If a checkpoint is already running.
    pub(crate) fn freeze(&mut self) {
        assert!(self.freeze.is_none(), "M3: a checkpoint is already running");
        let mut levels: Vec<Vec<NodeRef>> = Vec::new();
        for at in std::mem::take(&mut self.dirty) {
            let node = &self.nodes[at];
            assert_eq!(node.dirty, Some(self.period), "M1: a node in the dirty list is dirty");
            assert!(node.frozen.is_none(), "M3: a node is frozen before the checkpoint begins");
            let level = usize::from(node.level);
            if levels.len() <= level {
                levels.resize_with(level + 1, Vec::new);
            }
            match levels.get_mut(level) {
                Some(nodes) => nodes.push(at),
                None => panic!("M3: level {level} is not in the checkpoint"),
            }
        }
        let layers = self.layers.iter().map(|(id, layer)| {
            let record = LayerRecord {
                layer: *id,
                height: layer.height,
                root: layer.root_entry,
                stored: layer.stored,
            };
            (*id, FrozenLayer { record, root: layer.root })
        });
        let merged = self.layer_tree.records().copied().collect();
        self.freeze = Some(FrozenMap { period: self.period, layers: layers.collect(), merged, levels });
        self.period += 1;
    }

    /// The nodes that a checkpoint started now would store.
    pub(crate) fn nodes_to_store(&self) -> impl Iterator<Item = MissingNode> + '_ {
        let nodes = self.dirty.iter().map(|at| &self.nodes[*at]);
        nodes.filter(|node| !Node::is_empty(&node.entries)).map(|node| MissingNode {
            layer: node.layer,
            level: node.level,
            index: node.index,
        })
    }

    /// A node and its ancestors, which are stored with it (M1).
    pub(crate) fn with_ancestors(&self, node: MissingNode) -> impl Iterator<Item = MissingNode> + use<> {
        let height = self.layers.get(&node.layer).map_or(0, |layer| layer.height);
        let above = move |level| index_at(first_block(node), level);
        (node.level..height).map(move |level| MissingNode { layer: node.layer, level, index: above(level) })
    }

    /// Number of levels that the running checkpoint has to write, leaves included.
    pub(crate) fn frozen_levels(&self) -> usize {
        self.freeze.as_ref().map_or(0, |freeze| freeze.levels.len())
    }

    /// Returns and pins the images of up to `count` nodes of `level`; empty at the end of the
    /// level.
    pub(crate) fn take_level(&mut self, level: usize, count: usize) -> Vec<NodeImage> {
        let Some(freeze) = self.freeze.as_mut() else { return Vec::new() };
        let period = freeze.period;
        let Some(nodes) = freeze.levels.get_mut(level) else { return Vec::new() };
        let keep = nodes.len().saturating_sub(count);
        let taken = nodes.split_off(keep);
        taken.into_iter().map(|at| self.take_image(at, period)).collect()
    }

    fn take_image(&mut self, at: NodeRef, period: u64) -> NodeImage {
        let node = &mut self.nodes[at];
        let entries = match node.frozen.take() {
            Some(frozen) => frozen,
            None => {
                assert_eq!(node.dirty, Some(period), "M3: a frozen node lost its content");
                // Clean from now on, but pinned until its parent points to the new location (M2).
                node.dirty = None;
                node.entries.clone()
            }
        };
        node.pins += 1;
        let entries = (!Node::is_empty(&entries)).then_some(entries);
        NodeImage { node: at, layer: node.layer, level: node.level, index: node.index, entries }
    }

    /// Records that an image is stored at `entry`, or with [`MapEntry::ABSENT`] that the node is
    /// empty. Returns the replaced entry.
    pub(crate) fn node_stored(&mut self, at: NodeRef, entry: MapEntry) -> MapEntry {
        self.unpin(&[at]);
        let node = &self.nodes[at];
        assert!(node.dirty.is_some() || node.frozen.is_none(), "M3: a stored node keeps a frozen copy");
        let (layer, parent, slot) = (node.layer, node.parent, node.slot_in_parent());
        let level = node.level;
        let old = match parent {
            Some(parent) => {
                assert_eq!(self.nodes[parent].level, level + 1, "M4: a parent is one level above");
                if self.nodes[parent].dirty.is_none() && self.nodes[parent].entry(slot) != entry {
                    // A root added above this node since the freeze, which is not stored yet (M2).
                    self.mark_dirty(parent);
                }
                let parent = &mut self.nodes[parent];
                if let Some(place) = parent.frozen.as_mut().and_then(|frozen| frozen.get_mut(slot)) {
                    *place = entry;
                }
                parent.swap(slot, entry)
            }
            None => match self.layers.get_mut(&layer) {
                Some(layer) => std::mem::replace(&mut layer.root_entry, entry),
                None => panic!("a node belongs to layer {layer}, which does not exist"),
            },
        };
        if let Some(frozen) = self.freeze.as_mut().and_then(|freeze| freeze.layers.get_mut(&layer))
            && frozen.root == Some(at)
        {
            frozen.record.root = entry;
        }
        if entry.is_absent() && self.nodes[at].is_evictable() {
            self.evict(at);
        }
        old
    }

    /// Marks a node as dirty again after its image could not be stored.
    pub(crate) fn node_failed(&mut self, at: NodeRef) {
        self.unpin(&[at]);
        self.mark_dirty(at);
    }

    /// Ends the freeze and returns the frozen layers with their stored roots.
    ///
    /// # Panics
    /// If nodes are not stored yet.
    pub(crate) fn thaw(&mut self) -> FrozenLayers {
        let Some(freeze) = self.freeze.take() else { panic!("no checkpoint is running") };
        assert_eq!(freeze.remaining(), 0, "M3: a checkpoint ends before all of its nodes are stored");
        assert!(freeze.period < self.period, "M3: the period of a checkpoint is over");
        let layers = freeze.layers.into_values().map(|layer| {
            let height = if layer.record.root.address().is_some() { layer.record.height } else { 0 };
            LayerEntry::Layer(LayerRecord { height, ..layer.record })
        });
        layers.chain(freeze.merged.into_iter().map(LayerEntry::Merged)).collect()
    }

    /// Aborts the running checkpoint: all nodes it did not store are dirty again.
    pub(crate) fn abandon_freeze(&mut self) {
        let Some(freeze) = self.freeze.take() else { return };
        for at in freeze.levels.into_iter().flatten() {
            let node = &mut self.nodes[at];
            assert!(node.dirty.is_some(), "M3: a node that is not stored yet became clean");
            node.frozen = None;
            if node.dirty == Some(freeze.period) {
                node.dirty = Some(self.period);
                self.dirty.push(at);
            }
        }
    }
}
