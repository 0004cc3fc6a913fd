//! Which of many layers a block was found in, so that it is not looked for in all of them each time.
//!
//! A block of a volume with a hundred snapshots may lie below all of them. Who has looked for it through the layers notes where it was; who
//! looks for it next goes there at once. Only where there is more than one layer below: one is as quickly looked at.
//!
//! Only reads of single blocks use them: a longer read looks at every layer, once for all of its blocks.
//!
//! Always true (M5): no layer between the two has the block. So the shortcuts of a leaf's blocks are forgotten when blocks of that leaf go
//! from one layer to another; and all, when a layer that lies below another one gets a block otherwise, when other layers lie below one,
//! and when a layer is gone.

use std::collections::BTreeMap;

use format::{LayerId, NODE_ENTRIES};

use super::{LEVEL_BITS, slot_at};

/// Memory of a page, as a share of a node's with what belongs to that.
const PAGES_PER_NODE: usize = 4;
/// One part in this many of the map's memory is for pages.
const PART: usize = 8;

/// Where a block was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShortcutTarget {
    /// In this layer.
    In(LayerId),
    /// In none.
    Nowhere,
}

/// Shortcuts of as many blocks as a leaf has: the number of the layer and one, 0 for none known.
type Page = Box<[u32; NODE_ENTRIES]>;

/// A leaf's number within each layer, and the layer that is read: the pages of a leaf's blocks lie together.
type PageKey = (u64, LayerId);

/// In place of a layer's number: the block is in none.
const NOWHERE: u32 = u32::MAX;

/// See the module.
pub(super) struct Shortcuts {
    pages: BTreeMap<PageKey, Page>,
    pages_max: usize,
}

impl Shortcuts {
    /// For a map of so many nodes.
    pub(super) fn new(nodes: usize) -> Self {
        Self { pages: BTreeMap::new(), pages_max: (nodes / PART).saturating_mul(PAGES_PER_NODE).max(8) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Where below `layer` a block was found.
    pub(super) fn get(&self, layer: LayerId, block: u64) -> Option<ShortcutTarget> {
        let page = self.pages.get(&(block >> LEVEL_BITS, layer))?;
        match *page.get(slot_at(block, 0))? {
            0 => None,
            NOWHERE => Some(ShortcutTarget::Nowhere),
            number => Some(ShortcutTarget::In(LayerId::new(number - 1))),
        }
    }

    /// Notes where it was found. With too many pages all are forgotten: which of them are used is not known.
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

    pub(super) fn forget(&mut self) {
        self.pages.clear();
    }

    /// Forgets where the blocks of leaf `index` are, from whatever layer on.
    pub(super) fn forget_leaf(&mut self, index: u64) {
        let leaf = (index, LayerId::new(0))..=(index, LayerId::new(u32::MAX));
        while let Some((place, _)) = self.pages.range(leaf.clone()).next() {
            let place = *place;
            self.pages.remove(&place);
        }
    }
}
