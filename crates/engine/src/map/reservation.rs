//! Room that is kept for layers of thick volumes: what they may store and do not store yet.

use std::collections::BTreeMap;

use format::LayerId;

use super::Map;

/// See the module. Always true: `unused` is the sum over all these layers of what they may store beyond what they do.
#[derive(Default)]
pub(super) struct Reservations {
    /// Blocks that each may store.
    limits: BTreeMap<LayerId, u64>,
    unused: u64,
}

impl Reservations {
    /// A layer stores `new` blocks, and stored `old` until now.
    pub(super) fn stored(&mut self, layer: LayerId, old: u64, new: u64) {
        if let Some(may) = self.limits.get(&layer) {
            self.unused = self.unused - may.saturating_sub(old) + may.saturating_sub(new);
        }
    }
}

impl Map {
    /// Keeps room for so many blocks of a layer; none any more with 0.
    pub(crate) fn set_reservation(&mut self, layer: LayerId, blocks: u64) {
        let stored = self.stored(layer);
        let reservations = &mut self.reservations;
        let old = match blocks {
            0 => reservations.limits.remove(&layer),
            _ => reservations.limits.insert(layer, blocks),
        };
        reservations.unused -= old.unwrap_or(0).saturating_sub(stored);
        reservations.unused += blocks.saturating_sub(stored);
    }

    /// True if room is kept for blocks of a layer.
    pub(crate) fn has_reservation(&self, layer: LayerId) -> bool {
        self.reservations.limits.contains_key(&layer)
    }

    /// Blocks that room is kept for and that are not stored.
    pub(crate) fn unused_reservations(&self) -> u64 {
        self.reservations.unused
    }
}
