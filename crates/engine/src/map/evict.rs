//! Eviction: the clock algorithm over clean nodes keeps the map within its memory budget.

use super::{Map, MissingNode, NodeRef};

/// Maximum number of nodes examined per call, so that the cost is spread over many walks.
const SCAN_MAX: usize = 64;

impl Map {
    /// Keeps a node in memory, once it is loaded, until [`Map::release`].
    pub(crate) fn hold(&mut self, node: MissingNode) {
        *self.held.entry(node).or_default() += 1;
    }

    /// Ends a hold of a node.
    pub(crate) fn release(&mut self, node: MissingNode) {
        let Some(holders) = self.held.get_mut(&node) else { panic!("M2: no walk holds {node:?}") };
        *holders -= 1;
        if *holders == 0 {
            self.held.remove(&node);
        }
    }

    /// Evicts a node if the budget is used up and a node is evictable. Evicts more than one if the
    /// map is above its budget, after earlier calls found no evictable node.
    pub(super) fn make_room(&mut self) {
        let bound = self.nodes.bound();
        for _ in 0..SCAN_MAX.min(2 * bound) {
            if self.nodes.len() < self.budget {
                return;
            }
            self.hand = if self.hand + 1 >= bound { 0 } else { self.hand + 1 };
            let Some((at, node)) = self.nodes.at(self.hand) else { continue };
            if !node.is_evictable() || self.held.contains_key(&node.identity()) {
                continue;
            }
            if std::mem::take(&mut node.used) {
                continue;
            }
            self.evict(at);
        }
    }

    /// Evicts a clean, unpinned, childless node (M2).
    pub(super) fn evict(&mut self, at: NodeRef) {
        let node = self.nodes.remove(at);
        assert!(node.is_evictable(), "M2: only clean, unpinned, childless nodes are evicted");
        match node.parent {
            Some(parent) => {
                let parent = &mut self.nodes[parent];
                assert_eq!(parent.child(node.slot_in_parent()), Some(at), "M2: a node is its parent's child");
                parent.set_child(node.slot_in_parent(), None);
            }
            None => match self.layers.get_mut(&node.layer) {
                Some(layer) => layer.root = None,
                None => panic!("the layer {} of a node does not exist", node.layer),
            },
        }
    }
}
