//! Keeping the map within its memory budget: the clock algorithm over clean nodes.

use super::{Map, NodeRef};

/// Positions that one call looks at, at most: eviction is spread over the walks that need room.
const LOOK: usize = 64;

impl Map {
    /// Makes room for one more node if the budget is used up and something can go; for more than one after nothing could, so that what is
    /// beyond the budget is given back.
    pub(super) fn make_room(&mut self) {
        let bound = self.nodes.bound();
        for _ in 0..LOOK.min(2 * bound) {
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

    /// Forgets a clean, unpinned, childless node (M2).
    pub(super) fn evict(&mut self, at: NodeRef) {
        let node = self.nodes.remove(at);
        assert!(node.is_evictable(), "M2: only clean, unpinned, childless nodes are evicted");
        match node.parent {
            Some(parent) => self.nodes[parent].set_child(node.slot_in_parent(), None),
            None => {
                if let Some(layer) = self.layers.get_mut(&node.layer) {
                    layer.root = None;
                }
            }
        }
    }
}
