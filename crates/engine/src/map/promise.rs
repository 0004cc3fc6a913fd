//! Room that is kept for layers of thick volumes: what they may store and do not store yet.

use std::collections::BTreeMap;

use format::LayerId;

use super::Map;

/// See the module. Always true: `open` is the sum over all these layers of what they may store beyond what they do.
#[derive(Default)]
pub(super) struct Promises {
    /// Blocks that each may store.
    may_store: BTreeMap<LayerId, u64>,
    open: u64,
}

impl Promises {
    /// A layer stores `new` blocks, and stored `old` until now.
    pub(super) fn stored(&mut self, layer: LayerId, old: u64, new: u64) {
        if let Some(may) = self.may_store.get(&layer) {
            self.open = self.open - may.saturating_sub(old) + may.saturating_sub(new);
        }
    }
}

impl Map {
    /// Keeps room for so many blocks of a layer; none any more with 0.
    pub(crate) fn promise(&mut self, layer: LayerId, blocks: u64) {
        let stored = self.stored(layer);
        let promises = &mut self.promises;
        let old = match blocks {
            0 => promises.may_store.remove(&layer),
            _ => promises.may_store.insert(layer, blocks),
        };
        promises.open -= old.unwrap_or(0).saturating_sub(stored);
        promises.open += blocks.saturating_sub(stored);
    }

    /// True if room is kept for blocks of a layer.
    pub(crate) fn is_promised(&self, layer: LayerId) -> bool {
        self.promises.may_store.contains_key(&layer)
    }

    /// Blocks that room is kept for and that are not stored.
    pub(crate) fn promised(&self) -> u64 {
        self.promises.open
    }
}
