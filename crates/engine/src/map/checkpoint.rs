//! What a checkpoint takes from the map: the state at one record, written bottom-up while writes go on.
//!
//! [`Map::freeze`] costs nothing but a list swap: from then on, the first change to a node that is still to be written
//! keeps a copy of its frozen content (M3). [`Map::take_level`] hands out the images of one level; when each is
//! stored, [`Map::node_stored`] points its parent at it, in the frozen state and in the live one.

use std::collections::BTreeMap;

use format::{LayerEntry, LayerId, LayerRecord, MapEntry, MergedRecord, NODE_ENTRIES};

use super::walk::first_block;
use super::{Map, MissingNode, Node, NodeRef, index_at};

/// A node's content to be stored, or the news that it became empty.
pub(crate) struct NodeImage {
    /// The node; pinned until [`Map::node_stored`].
    pub(crate) node: NodeRef,
    /// Its layer.
    pub(crate) layer: LayerId,
    /// Its level.
    pub(crate) level: u8,
    /// Its number within the level.
    pub(crate) index: u64,
    /// What to store; `None` if it holds nothing.
    pub(crate) entries: Option<Box<[MapEntry; NODE_ENTRIES]>>,
}

/// The layers as they were at the freeze, their roots updated as nodes are stored, and where merged ones had gone.
pub(crate) type FrozenLayers = Vec<LayerEntry>;

struct FrozenLayer {
    record: LayerRecord,
    root: Option<NodeRef>,
}

/// The frozen state of a running checkpoint.
pub(super) struct FrozenMap {
    /// The period whose dirty nodes are being written.
    period: u64,
    layers: BTreeMap<LayerId, FrozenLayer>,
    merged: Vec<MergedRecord>,
    /// Nodes still to be handed out, by level.
    levels: Vec<Vec<NodeRef>>,
}

impl FrozenMap {
    pub(super) fn remaining(&self) -> usize {
        self.levels.iter().map(Vec::len).sum()
    }
}

impl Map {
    /// Freezes the map as it is now for a checkpoint.
    ///
    /// # Panics
    /// If one is running.
    pub(crate) fn freeze(&mut self) {
        assert!(self.freeze.is_none(), "a checkpoint is running");
        let mut levels: Vec<Vec<NodeRef>> = Vec::new();
        for at in std::mem::take(&mut self.dirty) {
            let node = &self.nodes[at];
            assert_eq!(node.dirty, Some(self.period), "a node in the list of dirty nodes is dirty");
            let level = usize::from(node.level);
            if levels.len() <= level {
                levels.resize_with(level + 1, Vec::new);
            }
            if let Some(nodes) = levels.get_mut(level) {
                nodes.push(at);
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

    /// The nodes that a checkpoint would store if it began now.
    pub(crate) fn nodes_to_store(&self) -> impl Iterator<Item = MissingNode> + '_ {
        let nodes = self.dirty.iter().map(|at| &self.nodes[*at]);
        nodes.filter(|node| !Node::is_empty(&node.entries)).map(|node| MissingNode {
            layer: node.layer,
            level: node.level,
            index: node.index,
        })
    }

    /// A node and those above it, which are stored with it (M1).
    pub(crate) fn with_ancestors(&self, node: MissingNode) -> impl Iterator<Item = MissingNode> + use<> {
        let height = self.layers.get(&node.layer).map_or(0, |layer| layer.height);
        let above = move |level| index_at(first_block(node), level);
        (node.level..height).map(move |level| MissingNode { layer: node.layer, level, index: above(level) })
    }

    /// Levels that the running checkpoint has to write, from the leaves up.
    pub(crate) fn frozen_levels(&self) -> usize {
        self.freeze.as_ref().map_or(0, |freeze| freeze.levels.len())
    }

    /// The images of up to `count` nodes of `level`, pinned. Empty when the level has been handed out.
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
                // Clean from here on, and pinned until its parent points to the new place (M2).
                node.dirty = None;
                node.entries.clone()
            }
        };
        node.pins += 1;
        let entries = (!Node::is_empty(&entries)).then_some(entries);
        NodeImage { node: at, layer: node.layer, level: node.level, index: node.index, entries }
    }

    /// An image was stored at `entry` (or held nothing, with [`MapEntry::ABSENT`]). Gives the entry it replaces.
    pub(crate) fn node_stored(&mut self, at: NodeRef, entry: MapEntry) -> MapEntry {
        self.unpin(&[at]);
        let node = &self.nodes[at];
        let (layer, parent, slot) = (node.layer, node.parent, node.slot_in_parent());
        let old = match parent {
            Some(parent) => {
                if self.nodes[parent].dirty.is_none() && self.nodes[parent].entry(slot) != entry {
                    // A root that grew above this node since the freeze, and is stored nowhere yet (M2).
                    self.touch(parent);
                }
                let parent = &mut self.nodes[parent];
                if let Some(place) = parent.frozen.as_mut().and_then(|frozen| frozen.get_mut(slot)) {
                    *place = entry;
                }
                parent.swap(slot, entry)
            }
            None => match self.layers.get_mut(&layer) {
                Some(layer) => std::mem::replace(&mut layer.root_entry, entry),
                None => panic!("a node of layer {layer}, which does not exist"),
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

    /// An image could not be stored: the node is as dirty as before.
    pub(crate) fn node_failed(&mut self, at: NodeRef) {
        self.unpin(&[at]);
        self.touch(at);
    }

    /// Ends the checkpoint's use of the map; gives the layers as they were frozen, with their stored roots.
    ///
    /// # Panics
    /// If nodes are still to be stored.
    pub(crate) fn thaw(&mut self) -> FrozenLayers {
        let Some(freeze) = self.freeze.take() else { panic!("no checkpoint is running") };
        assert_eq!(freeze.remaining(), 0, "a checkpoint ended before its nodes were stored");
        let layers = freeze.layers.into_values().map(|layer| {
            let height = if layer.record.root.address().is_some() { layer.record.height } else { 0 };
            LayerEntry::Layer(LayerRecord { height, ..layer.record })
        });
        layers.chain(freeze.merged.into_iter().map(LayerEntry::Merged)).collect()
    }

    /// Gives up the running checkpoint: everything it had not stored is dirty again.
    pub(crate) fn abandon_freeze(&mut self) {
        let Some(freeze) = self.freeze.take() else { return };
        for at in freeze.levels.into_iter().flatten() {
            let node = &mut self.nodes[at];
            node.frozen = None;
            if node.dirty == Some(freeze.period) {
                node.dirty = Some(self.period);
                self.dirty.push(at);
            }
        }
    }
}
