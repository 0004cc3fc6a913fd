//! Tree walks: lookups, preparing leaves for changes, and loading nodes.

use std::rc::Rc;

use format::{Address, LayerId, MapEntry, Mapping, NODE_ENTRIES};
use reactor::WaitList;
use smallvec::SmallVec;

use super::{LEVEL_BITS, Layer, Map, MissingNode, Node, NodeRef, height_for, index_at, slot_at};
use crate::invariant::{part, to_index};

/// Leaves pinned for one operation.
pub(crate) type Pins = SmallVec<[NodeRef; 2]>;

/// Result of a walk towards a block.
pub(super) enum WalkEnd {
    /// The requested node, in most cases a leaf.
    Node(NodeRef),
    /// No node exists below `level`: the whole subtree has this entry.
    Nothing { level: u8, entry: MapEntry },
    /// This node exists but is not in memory.
    Unread(MissingNode),
}

impl Map {
    /// Appends the entries of blocks `block..block + count` to `entries`.
    ///
    /// # Errors
    /// The node to load first; `entries` is then unchanged.
    pub(crate) fn lookup(
        &mut self,
        layer: LayerId,
        block: u64,
        count: usize,
        entries: &mut SmallVec<[MapEntry; 8]>,
    ) -> Result<(), MissingNode> {
        let before = entries.len();
        let end = block + count as u64;
        let mut next = block;
        while next < end {
            let (until, found) = match self.reach(layer, next) {
                WalkEnd::Node(leaf) => ((next | (NODE_ENTRIES as u64 - 1)) + 1, Ok(leaf)),
                WalkEnd::Nothing { level, entry } => (subtree_end(next, level), Err(entry)),
                WalkEnd::Unread(load) => {
                    entries.truncate(before);
                    return Err(load);
                }
            };
            let taken = to_index(until.min(end) - next);
            match found {
                Ok(leaf) => {
                    let start = slot_at(next, 0);
                    let run = part(&self.nodes[leaf].entries[..], start..start + taken, "R1");
                    entries.extend_from_slice(run);
                }
                Err(entry) => entries.resize(entries.len() + taken, entry),
            }
            next += taken as u64;
        }
        Ok(())
    }

    /// Returns the entry of one block; a fast path of [`Map::lookup`].
    pub(crate) fn lookup_one(&mut self, layer: LayerId, block: u64) -> Result<MapEntry, MissingNode> {
        match self.reach(layer, block) {
            WalkEnd::Node(leaf) => Ok(self.nodes[leaf].entry(slot_at(block, 0))),
            WalkEnd::Nothing { entry, .. } => Ok(entry),
            WalkEnd::Unread(load) => Err(load),
        }
    }

    /// Returns the entry of one block if its leaf is in memory. Does not count as a use for
    /// eviction.
    pub(crate) fn peek(&self, layer: LayerId, block: u64) -> Option<&MapEntry> {
        let leaf = self.find(layer, 0, block >> LEVEL_BITS)?;
        self.nodes[leaf].entries.get(slot_at(block, 0))
    }

    /// Returns the first block in `from..end` with an existing leaf; `None` if there is none.
    ///
    /// # Errors
    /// The inner node to load first.
    pub(crate) fn next_leaf(
        &mut self,
        layer: LayerId,
        from: u64,
        end: u64,
    ) -> Result<Option<u64>, MissingNode> {
        let mut next = from;
        while next < end {
            match self.reach(layer, next) {
                WalkEnd::Node(_) => return Ok(Some(next)),
                WalkEnd::Unread(load) if load.level == 0 => return Ok(Some(next)),
                WalkEnd::Unread(load) => return Err(load),
                WalkEnd::Nothing { level, .. } => next = subtree_end(next, level),
            }
        }
        Ok(None)
    }

    /// Returns true if the leaf of a block exists and has entries, so that it is stored anyway.
    ///
    /// # Errors
    /// The inner node to load first.
    pub(crate) fn has_entries(&mut self, layer: LayerId, block: u64) -> Result<bool, MissingNode> {
        match self.reach(layer, block) {
            WalkEnd::Node(leaf) => Ok(self.nodes[leaf].entries.iter().any(|entry| !entry.is_absent())),
            WalkEnd::Unread(load) if load.level == 0 => Ok(true),
            WalkEnd::Unread(load) => Err(load),
            WalkEnd::Nothing { .. } => Ok(false),
        }
    }

    /// Pins the leaves that cover `block..block + count` in `pins`, and creates missing ones.
    /// `pins` is empty before the first call.
    ///
    /// # Errors
    /// The node to load first. Nodes pinned so far stay pinned; otherwise several large ranges
    /// could evict each other's leaves forever. The caller retries or releases the pins.
    pub(crate) fn prepare_write(
        &mut self,
        layer: LayerId,
        block: u64,
        count: u64,
        pins: &mut Pins,
    ) -> Result<(), MissingNode> {
        let leaves = index_at(block, 0)..=index_at(block + count - 1, 0);
        for index in leaves.skip(pins.len()) {
            let leaf = self.create_leaf(layer, index << LEVEL_BITS)?;
            self.nodes[leaf].pins += 1;
            pins.push(leaf);
        }
        Ok(())
    }

    /// Pins every existing leaf within `block..block + count` in `pins`, in block order.
    ///
    /// # Errors
    /// The node to load first. Nodes pinned so far stay pinned; otherwise a range with more leaves
    /// than the memory budget would never be in memory as a whole. The caller retries or releases
    /// the pins.
    pub(crate) fn prepare_unmap(
        &mut self,
        layer: LayerId,
        block: u64,
        count: u64,
        pins: &mut Pins,
    ) -> Result<(), MissingNode> {
        let end = block + count;
        let mut next = block;
        while next < end {
            next = match self.reach(layer, next) {
                WalkEnd::Node(leaf) => {
                    let start = self.leaf_start(leaf);
                    if let Err(at) = pins.binary_search_by_key(&start, |pinned| self.leaf_start(*pinned)) {
                        self.nodes[leaf].pins += 1;
                        pins.insert(at, leaf);
                    }
                    start + NODE_ENTRIES as u64
                }
                WalkEnd::Nothing { level, .. } => subtree_end(next, level),
                WalkEnd::Unread(load) => return Err(load),
            };
        }
        Ok(())
    }

    /// Starts to load a missing node: returns its stored entry, or the wait list of a load in
    /// progress. `None` if the node is in memory by now or no longer exists.
    pub(crate) fn begin_load(&mut self, load: MissingNode) -> Option<Result<MapEntry, Rc<WaitList>>> {
        if let Some(waiting) = self.loading.get(&load) {
            return Some(Err(waiting.clone()));
        }
        let entry = self.stored_entry(load)?;
        self.loading.insert(load, Rc::default());
        Some(Ok(entry))
    }

    /// Ends a load: inserts the node unless the tree has changed, and wakes the waiting tasks.
    pub(crate) fn end_load(
        &mut self,
        load: MissingNode,
        read_from: MapEntry,
        entries: Option<Box<[MapEntry; NODE_ENTRIES]>>,
    ) {
        if let Some(entries) = entries
            && self.stored_entry(load) == Some(read_from)
        {
            self.attach(load, entries);
        }
        if let Some(waiting) = self.loading.remove(&load) {
            waiting.wake_all();
        }
    }

    /// Returns the stored entry of a missing node if its parent is in memory; `None`
    /// otherwise.
    fn stored_entry(&self, load: MissingNode) -> Option<MapEntry> {
        let layer = self.layers.get(&load.layer)?;
        let entry = if load.level + 1 == layer.height {
            if layer.root.is_some() {
                return None;
            }
            layer.root_entry
        } else {
            let parent = self.find(load.layer, load.level + 1, load.index >> LEVEL_BITS)?;
            let slot = slot_of_index(load.index);
            if self.nodes[parent].child(slot).is_some() {
                return None;
            }
            self.nodes[parent].entry(slot)
        };
        entry.address().map(|_| entry)
    }

    /// Returns the node with this level and index, if it is in memory.
    pub(super) fn find(&self, layer: LayerId, level: u8, index: u64) -> Option<NodeRef> {
        let layer = self.layers.get(&layer)?;
        let mut at = layer.root?;
        if index >> (LEVEL_BITS * u32::from(layer.height.checked_sub(1 + level)?)) != 0 {
            return None;
        }
        for above in (level + 1..layer.height).rev() {
            at = self.nodes[at].child(slot_of_index(index >> (LEVEL_BITS * u32::from(above - level - 1))))?;
        }
        Some(at)
    }

    /// Inserts a loaded node. The caller has checked that it is not in memory.
    fn attach(&mut self, load: MissingNode, entries: Box<[MapEntry; NODE_ENTRIES]>) {
        let is_root = self.layers.get(&load.layer).is_some_and(|layer| layer.height == load.level + 1);
        let parent =
            if is_root { None } else { self.find(load.layer, load.level + 1, load.index >> LEVEL_BITS) };
        self.add(Node::new(load.layer, load.level, load.index, parent, entries));
    }

    /// Adds a node to memory, as a child of its parent or as the root of its layer.
    fn add(&mut self, node: Node) -> NodeRef {
        let (layer, parent, slot) = (node.layer, node.parent, node.slot_in_parent());
        // The pin protects the parent from eviction while a node is evicted for the child.
        if let Some(parent) = parent {
            self.nodes[parent].pins += 1;
        }
        self.make_room();
        let at = self.nodes.insert(node);
        match parent {
            Some(parent) => {
                let parent = &mut self.nodes[parent];
                parent.pins -= 1;
                assert!(parent.child(slot).is_none(), "a node is in memory twice");
                parent.set_child(slot, Some(at));
            }
            None => match self.layers.get_mut(&layer) {
                Some(layer) => layer.root = Some(at),
                None => panic!("a root belongs to layer {layer}, which does not exist"),
            },
        }
        at
    }

    pub(super) fn reach(&mut self, layer: LayerId, block: u64) -> WalkEnd {
        self.descend(layer, block, 0)
    }

    /// Descends towards `block`, down to the node of level `to`.
    fn descend(&mut self, layer: LayerId, block: u64, to: u8) -> WalkEnd {
        let Some(tree) = self.layers.get(&layer) else {
            return WalkEnd::Nothing { level: u8::MAX, entry: self.unlisted };
        };
        if tree.height == 0 || height_for(block) > tree.height {
            // Absent up to the end of the address space, or up to the current height of the tree.
            return WalkEnd::Nothing { level: u8::MAX, entry: MapEntry::ABSENT };
        }
        let mut level = tree.height - 1;
        if level < to {
            return WalkEnd::Nothing { level: u8::MAX, entry: MapEntry::ABSENT };
        }
        let Some(mut at) = tree.root else {
            return match tree.root_entry.mapping() {
                Mapping::Block { .. } => WalkEnd::Unread(MissingNode { layer, level, index: 0 }),
                _ => WalkEnd::Nothing { level: level + 1, entry: tree.root_entry },
            };
        };
        while level > to {
            let slot = slot_at(block, level);
            let node = &mut self.nodes[at];
            node.used = true;
            match (node.child(slot), node.entry(slot)) {
                (Some(child), _) => at = child,
                (None, entry) if entry.address().is_some() => {
                    let index = index_at(block, level - 1);
                    return WalkEnd::Unread(MissingNode { layer, level: level - 1, index });
                }
                (None, entry) => return WalkEnd::Nothing { level, entry },
            }
            level -= 1;
        }
        self.nodes[at].used = true;
        WalkEnd::Node(at)
    }

    /// Returns true if a node is currently stored at `address`.
    ///
    /// # Errors
    /// The ancestor to load first.
    pub(crate) fn is_stored_at(&mut self, node: MissingNode, address: Address) -> Result<bool, MissingNode> {
        let entry = match self.descend(node.layer, first_block(node), node.level) {
            WalkEnd::Nothing { .. } => return Ok(false),
            WalkEnd::Unread(load) if load != node => return Err(load),
            WalkEnd::Unread(load) => self.stored_entry(load),
            WalkEnd::Node(at) => match self.nodes[at].parent {
                Some(parent) => Some(self.nodes[parent].entry(self.nodes[at].slot_in_parent())),
                None => self.layers.get(&node.layer).map(|layer| layer.root_entry),
            },
        };
        Ok(entry.and_then(|entry| entry.address()) == Some(address))
    }

    /// Keeps a node in memory, as [`Map::hold`], if it is currently stored at `address`. Returns
    /// whether it is.
    ///
    /// # Errors
    /// The node to load first, which may be the node itself.
    pub(crate) fn hold_if_stored_at(
        &mut self,
        node: MissingNode,
        address: Address,
    ) -> Result<bool, MissingNode> {
        let found = self.node_stored_at(node, address)?;
        if found.is_some() {
            self.hold(node);
        }
        Ok(found.is_some())
    }

    /// Marks a node as dirty if it is currently stored at `address`, so that the next checkpoint
    /// rewrites it. Returns whether it is.
    ///
    /// # Errors
    /// The node to load first.
    pub(crate) fn rewrite_node(&mut self, node: MissingNode, address: Address) -> Result<bool, MissingNode> {
        let found = self.node_stored_at(node, address)?;
        // A dirty node is rewritten anyway.
        if let Some(at) = found.filter(|at| self.nodes[*at].dirty.is_none()) {
            self.mark_dirty(at);
        }
        Ok(found.is_some())
    }

    /// Returns a node in memory if it is currently stored at `address`.
    fn node_stored_at(
        &mut self,
        node: MissingNode,
        address: Address,
    ) -> Result<Option<NodeRef>, MissingNode> {
        if !self.is_stored_at(node, address)? {
            return Ok(None);
        }
        match self.descend(node.layer, first_block(node), node.level) {
            WalkEnd::Unread(load) => Err(load),
            WalkEnd::Node(at) => Ok(Some(at)),
            WalkEnd::Nothing { .. } => Ok(None),
        }
    }

    /// Returns the leaf of `block`, and creates it if it does not exist.
    fn create_leaf(&mut self, layer: LayerId, block: u64) -> Result<NodeRef, MissingNode> {
        self.grow(layer, height_for(block));
        loop {
            match self.reach(layer, block) {
                WalkEnd::Node(leaf) => return Ok(leaf),
                WalkEnd::Unread(load) => return Err(load),
                WalkEnd::Nothing { level, entry } => {
                    // Child of the deepest existing node, at `level - 1`.
                    let child_level = level - 1;
                    let index = index_at(block, child_level);
                    let height = self.layers.get(&layer).map_or(0, |layer| layer.height);
                    let parent = if child_level + 1 == height {
                        None
                    } else {
                        self.find(layer, level, index >> LEVEL_BITS)
                    };
                    let entries = Box::new([entry; NODE_ENTRIES]);
                    self.add(Node::new(layer, child_level, index, parent, entries));
                }
            }
        }
    }

    /// Ensures that the layer exists and its tree has at least `height` levels.
    fn grow(&mut self, layer: LayerId, height: u8) {
        let empty = match self.unlisted.is_unknown() {
            true => self.unknown_layer(),
            false => Layer { height: 0, root: None, root_entry: MapEntry::ABSENT, stored: 0 },
        };
        let tree = self.layers.entry(layer).or_insert(empty);
        if tree.height == 0 {
            tree.height = height;
        }
        while self.layers.get(&layer).is_some_and(|tree| tree.height < height) {
            self.grow_by_one(layer);
        }
    }

    /// Adds a new root above the old one.
    fn grow_by_one(&mut self, layer: LayerId) {
        let Some(tree) = self.layers.get_mut(&layer) else { return };
        let level = tree.height;
        let old_root = tree.root.take();
        let old_entry = std::mem::replace(&mut tree.root_entry, MapEntry::ABSENT);
        tree.height += 1;
        let mut entries = Box::new([MapEntry::ABSENT; NODE_ENTRIES]);
        if let Some(first) = entries.first_mut() {
            *first = old_entry;
        }
        // The old root stays pinned during an eviction for the new one.
        if let Some(old_root) = old_root {
            self.nodes[old_root].pins += 1;
        }
        let root = self.add(Node::new(layer, level, 0, None, entries));
        if let Some(old_root) = old_root {
            let node = &mut self.nodes[old_root];
            node.pins -= 1;
            node.parent = Some(root);
            self.nodes[root].set_child(0, Some(old_root));
        }
        if !old_entry.is_absent() || old_root.is_some_and(|old| self.nodes[old].dirty.is_some()) {
            // M1, M2: the new root is not stored yet.
            self.mark_dirty(root);
        }
    }
}

/// Slot in its parent of the node with this index.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn slot_of_index(index: u64) -> usize {
    index as usize % NODE_ENTRIES
}

/// End of the subtree around `block` that an entry of a node of `level` covers.
pub(super) fn subtree_end(block: u64, level: u8) -> u64 {
    match 1u64.checked_shl(LEVEL_BITS * u32::from(level)) {
        Some(size) => (block | (size - 1)).saturating_add(1),
        None => u64::MAX,
    }
}

/// First block covered by a node.
pub(super) fn first_block(node: MissingNode) -> u64 {
    node.index << (LEVEL_BITS * (u32::from(node.level) + 1))
}
