//! Space reservations of layers of thick volumes.

use std::collections::BTreeMap;

use format::LayerId;

use super::Map;

/// Reservations by layer. Always true: `unused` is the sum over all layers of the reserved blocks
/// that are not stored.
#[derive(Default)]
pub(super) struct Reservations {
    /// Reserved blocks of each layer.
    limits: BTreeMap<LayerId, u64>,
    unused: u64,
}

impl Reservations {
    /// Updates `unused` after a layer's number of stored blocks changed from `old` to `new`.
    pub(super) fn stored(&mut self, layer: LayerId, old: u64, new: u64) {
        if let Some(may) = self.limits.get(&layer) {
            self.unused = self.unused - may.saturating_sub(old) + may.saturating_sub(new);
        }
    }
}

impl Map {
    /// Sets the number of blocks reserved for a layer; 0 removes the reservation.
    pub(crate) fn set_reservation(&mut self, layer: LayerId, blocks: u64) {
        let stored = self.stored(layer);
        let reservations = &mut self.reservations;
        let old = match blocks {
            0 => reservations.limits.remove(&layer),
            _ => reservations.limits.insert(layer, blocks),
        };
        reservations.unused -= old.map_or(0, |old| old.saturating_sub(stored));
        reservations.unused += blocks.saturating_sub(stored);
    }

    /// Returns true if blocks are reserved for a layer.
    pub(crate) fn has_reservation(&self, layer: LayerId) -> bool {
        self.reservations.limits.contains_key(&layer)
    }

    /// Number of reserved blocks that are not stored.
    pub(crate) fn unused_reservations(&self) -> u64 {
        self.reservations.unused
    }
}
