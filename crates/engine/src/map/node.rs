//! In-memory map nodes, and their slab.

use std::ops::{Index, IndexMut};

use format::{LayerId, MapEntry, NODE_ENTRIES};
use slab::Slab;

use super::MissingNode;
use crate::invariant::{element, narrow};

/// Reference to a node in memory. Valid while the node is pinned or dirty, or until the next
/// eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeRef(u32);

/// A map node in memory.
pub(super) struct Node {
    pub(super) layer: LayerId,
    /// 0 for a leaf.
    pub(super) level: u8,
    /// Number of the node within its level.
    pub(super) index: u64,
    pub(super) parent: Option<NodeRef>,
    pub(super) entries: Box<[MapEntry; NODE_ENTRIES]>,
    /// Children of an inner node that are in memory (slab key + 1; 0 for none).
    children: Option<Box<[u32; NODE_ENTRIES]>>,
    pub(super) cached_children: u16,
    /// Period in which the node became dirty; `None` if it is clean.
    pub(super) dirty: Option<u64>,
    /// Content that the running checkpoint must write, if the node has changed since the freeze.
    pub(super) frozen: Option<Box<[MapEntry; NODE_ENTRIES]>>,
    pub(super) pins: u32,
    /// Used since the clock hand last passed.
    pub(super) used: bool,
}

impl Node {
    pub(super) fn new(
        layer: LayerId,
        level: u8,
        index: u64,
        parent: Option<NodeRef>,
        entries: Box<[MapEntry; NODE_ENTRIES]>,
    ) -> Self {
        let children = (level > 0).then(|| Box::new([0; NODE_ENTRIES]));
        Self {
            layer,
            level,
            index,
            parent,
            entries,
            children,
            cached_children: 0,
            dirty: None,
            frozen: None,
            pins: 0,
            used: true,
        }
    }

    pub(super) fn entry(&self, slot: usize) -> MapEntry {
        element(self.entries.as_slice(), slot, "M4")
    }

    pub(super) fn swap(&mut self, slot: usize, entry: MapEntry) -> MapEntry {
        match self.entries.get_mut(slot) {
            Some(place) => std::mem::replace(place, entry),
            None => panic!("a node has no slot {slot}"),
        }
    }

    pub(super) fn child(&self, slot: usize) -> Option<NodeRef> {
        let key = *self.children.as_ref()?.get(slot)?;
        key.checked_sub(1).map(NodeRef)
    }

    pub(super) fn set_child(&mut self, slot: usize, child: Option<NodeRef>) {
        let Some(place) = self.children.as_mut().and_then(|children| children.get_mut(slot)) else {
            panic!("a leaf has no children");
        };
        let was = *place != 0;
        *place = child.map_or(0, |child| child.0 + 1);
        match (was, child.is_some()) {
            (false, true) => self.cached_children += 1,
            (true, false) => self.cached_children -= 1,
            _ => {}
        }
        assert!(usize::from(self.cached_children) <= NODE_ENTRIES, "M2: a node has more children than slots");
    }

    /// Slot of this node in its parent.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn slot_in_parent(&self) -> usize {
        self.index as usize % NODE_ENTRIES
    }

    pub(super) fn is_empty(entries: &[MapEntry; NODE_ENTRIES]) -> bool {
        entries.iter().all(|entry| entry.is_absent())
    }

    /// Returns layer, level and number of the node.
    pub(super) fn identity(&self) -> MissingNode {
        MissingNode { layer: self.layer, level: self.level, index: self.index }
    }

    pub(super) fn is_evictable(&self) -> bool {
        self.dirty.is_none() && self.frozen.is_none() && self.pins == 0 && self.cached_children == 0
    }
}

/// The nodes in memory.
#[derive(Default)]
pub(super) struct Nodes {
    slab: Slab<Node>,
}

impl Nodes {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Exclusive upper bound of the keys.
    pub(super) fn bound(&self) -> usize {
        self.slab.capacity()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Node> {
        self.slab.iter().map(|(_, node)| node)
    }

    pub(super) fn insert(&mut self, node: Node) -> NodeRef {
        assert!(node.pins == 0 && node.cached_children == 0, "M2: a node is used before it is in memory");
        NodeRef(narrow(self.slab.insert(node), "M2"))
    }

    pub(super) fn remove(&mut self, node: NodeRef) -> Node {
        self.slab.remove(node.0 as usize)
    }

    /// Returns the node in slab position `position`, if any.
    pub(super) fn at(&mut self, position: usize) -> Option<(NodeRef, &mut Node)> {
        let key = u32::try_from(position).ok()?;
        self.slab.get_mut(position).map(|node| (NodeRef(key), node))
    }

    /// Removes all nodes of a dropped layer and collects the entries of their children.
    pub(super) fn remove_layer(&mut self, layer: LayerId, places: &mut Vec<MapEntry>) {
        self.slab.retain(|_, node| {
            if node.layer != layer {
                return true;
            }
            assert!(node.pins == 0, "M2: a node of a dropped layer is pinned");
            if node.level > 0 {
                places.extend(node.entries.iter().copied());
            }
            false
        });
    }
}

impl Index<NodeRef> for Nodes {
    type Output = Node;

    fn index(&self, node: NodeRef) -> &Node {
        match self.slab.get(node.0 as usize) {
            Some(node) => node,
            None => panic!("{node:?} is not in memory"),
        }
    }
}

impl IndexMut<NodeRef> for Nodes {
    fn index_mut(&mut self, node: NodeRef) -> &mut Node {
        match self.slab.get_mut(node.0 as usize) {
            Some(node) => node,
            None => panic!("{node:?} is not in memory"),
        }
    }
}
