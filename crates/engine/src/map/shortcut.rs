//! Shortcuts: a cache of the ancestor layer that holds each block.
//!
//! In a volume with a hundred snapshots, a block may be in the oldest layer. The first read finds
//! it through all layers and caches the layer; later reads use it directly. Only blocks with more
//! than one ancestor layer get shortcuts, and only single-block reads use them: a longer read walks
//! every layer once for all of its blocks.
//!
//! Always true (M5): no skipped layer holds the block. Therefore the shortcuts of a leaf are
//! dropped when blocks of this leaf move between layers. All shortcuts are dropped when a layer
//! with children gets a block in another way, when parents change, and when a layer is removed.

use std::collections::BTreeMap;

use format::{LayerId, NODE_ENTRIES};

use super::{LEVEL_BITS, slot_at};

/// Pages that use as much memory as one node with its overhead.
const PAGES_PER_NODE: usize = 4;
/// Pages may use 1/8 of the map's memory.
const MEMORY_SHARE: usize = 8;

/// Cached result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShortcutTarget {
    /// The layer that holds the block.
    In(LayerId),
    /// No layer holds the block.
    Nowhere,
}

/// Shortcuts for the blocks of one leaf: layer number + 1; 0 for no shortcut.
type Page = Box<[u32; NODE_ENTRIES]>;

/// Leaf number, and the layer that is read: pages of the same blocks are adjacent.
type PageKey = (u64, LayerId);

/// Page entry for a block that no layer holds.
const NOWHERE: u32 = u32::MAX;

/// The shortcuts of a map.
pub(super) struct Shortcuts {
    pages: BTreeMap<PageKey, Page>,
    pages_max: usize,
}

impl Shortcuts {
    /// Creates the cache for a map of `nodes` nodes.
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            pages: BTreeMap::new(),
            pages_max: (nodes / MEMORY_SHARE).saturating_mul(PAGES_PER_NODE).max(8),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns the cached result for a block of `layer`.
    pub(super) fn get(&self, layer: LayerId, block: u64) -> Option<ShortcutTarget> {
        let page = self.pages.get(&(block >> LEVEL_BITS, layer))?;
        match *page.get(slot_at(block, 0))? {
            0 => None,
            NOWHERE => Some(ShortcutTarget::Nowhere),
            number => Some(ShortcutTarget::In(LayerId::new(number - 1))),
        }
    }

    /// Caches the result of a lookup. Drops all pages if there are too many, because their use is
    /// not tracked.
    pub(super) fn set(&mut self, layer: LayerId, block: u64, found: ShortcutTarget) {
        let number = match found {
            ShortcutTarget::Nowhere => NOWHERE,
            ShortcutTarget::In(layer) if layer.get() < NOWHERE - 1 => layer.get() + 1,
            ShortcutTarget::In(_) => return,
        };
        if self.pages.len() >= self.pages_max {
            self.pages.clear();
        }
        let page =
            self.pages.entry((block >> LEVEL_BITS, layer)).or_insert_with(|| Box::new([0; NODE_ENTRIES]));
        if let Some(place) = page.get_mut(slot_at(block, 0)) {
            *place = number;
        }
    }

    pub(super) fn clear(&mut self) {
        self.pages.clear();
    }

    /// Drops the shortcuts for the blocks of leaf `index`, for all layers.
    pub(super) fn forget_leaf(&mut self, index: u64) {
        let leaf = (index, LayerId::new(0))..=(index, LayerId::new(u32::MAX));
        while let Some((place, _)) = self.pages.range(leaf.clone()).next() {
            let place = *place;
            self.pages.remove(&place);
        }
    }
}
