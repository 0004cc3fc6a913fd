//! Eviction: the clock algorithm over clean nodes keeps the map within its memory budget.

use super::{Map, NodeRef};

/// Maximum number of nodes examined per call, so that the cost is spread over many walks.
const SCAN_MAX: usize = 64;

impl Map {
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
            if !node.is_evictable() {
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
