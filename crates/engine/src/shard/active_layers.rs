//! Which layer each volume writes to, in this shard; and changing that in all shards at one point in time.
//!
//! A snapshot leaves a volume's layer as it is and puts an empty one above it. Every shard first holds the volume's writes back, and only
//! when all do (F2), each goes over to the new layer: so no write that somebody made knowing of another is in the old layer without
//! that one. What had been queued before goes to the old layer still, and is waited for by whoever took the snapshot, not by writers.

use std::cell::RefCell;

use format::{LayerId, UnmapMode, VolumeId};
use reactor::WaitList;

use super::Shard;
use crate::error::{Error, ErrorKind, Result};

/// The volumes that a shard knows.
#[derive(Default)]
pub(super) struct ActiveLayers {
    /// By number of the volume.
    tops: RefCell<Vec<Option<ActiveLayer>>>,
    released: WaitList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ActiveLayer {
    layer: LayerId,
    /// Writes wait.
    held: bool,
}

impl ActiveLayers {
    fn get(&self, volume: VolumeId) -> Option<ActiveLayer> {
        self.tops.borrow().get(volume.get() as usize).copied().flatten()
    }

    fn set(&self, volume: VolumeId, top: Option<ActiveLayer>) {
        let mut tops = self.tops.borrow_mut();
        let at = volume.get() as usize;
        if tops.len() <= at {
            tops.resize(at + 1, None);
        }
        if let Some(place) = tops.get_mut(at) {
            *place = top;
        }
        drop(tops);
        self.released.wake_all();
    }
}

impl Shard {
    /// A volume uses `layer` from now on, which lies above `parent`; its writes, if they were held back, go on.
    pub(crate) fn set_active_layer(&self, volume: VolumeId, layer: LayerId, parent: Option<LayerId>) {
        self.ledger.map.borrow_mut().set_parent(layer, parent);
        self.tops.set(volume, Some(ActiveLayer { layer, held: false }));
    }

    /// Something else lies below a layer from now on, which shows the same.
    pub(crate) fn set_parent(&self, layer: LayerId, parent: Option<LayerId>) {
        self.ledger.map.borrow_mut().set_parent(layer, parent);
    }

    /// What a volume gets beside others.
    pub(crate) fn set_weight(&self, volume: VolumeId, weight: u16) {
        self.reads.set_weight(volume, weight);
        self.writes.set_weight(volume, weight);
    }

    /// Keeps room for so many blocks of a layer; none any more with 0.
    pub(crate) fn promise(&self, layer: LayerId, blocks: u64) {
        let promised = {
            let mut map = self.ledger.map.borrow_mut();
            map.set_reservation(layer, blocks);
            map.unused_reservations()
        };
        let live = self.rows.segments.borrow().live_blocks();
        self.log.pacer.space.set_usage(self.identity.shard.index(), live, promised);
    }

    /// True if room is kept for more than there is in the pool.
    pub(crate) fn is_overcommitted(&self) -> bool {
        self.log.pacer.space.is_overcommitted()
    }

    /// A volume is gone, and nothing lies above its layer any more.
    pub(crate) fn forget_volume(&self, volume: VolumeId) {
        if let Some(top) = self.tops.get(volume) {
            self.ledger.map.borrow_mut().set_parent(top.layer, None);
        }
        self.tops.set(volume, None);
    }

    /// Holds writes of a volume back, or lets them go on.
    pub(crate) fn hold_writes(&self, volume: VolumeId, held: bool) {
        if let Some(top) = self.tops.get(volume) {
            self.tops.set(volume, Some(ActiveLayer { held, ..top }));
        }
    }

    /// The layer that a volume uses.
    pub(super) fn layer_of(&self, volume: VolumeId) -> Result<LayerId> {
        match self.tops.get(volume) {
            Some(top) => Ok(top.layer),
            None => Err(Error::new(ErrorKind::Closed, "the volume was deleted")),
        }
    }

    /// The layer that a volume writes to, once its writes are not held back.
    ///
    /// # Errors
    /// `Closed` if the volume was deleted; the log's failure if its writes are still held back then.
    pub(crate) async fn layer_for_writing(&self, volume: VolumeId) -> Result<LayerId> {
        if let Some(ActiveLayer { layer, held: false }) = self.tops.get(volume) {
            return Ok(layer);
        }
        let may_go = || !self.tops.get(volume).is_some_and(|top| top.held) || self.log.failure().is_some();
        self.tops.released.until(|| may_go().then_some(())).await;
        match (self.tops.get(volume), self.log.failure()) {
            // Callers try again until the writes go to the layer, without a pause: that moment may never come.
            (Some(ActiveLayer { held: true, .. }), Some(failure)) => Err(failure),
            _ => self.layer_of(volume),
        }
    }

    /// True if a volume's writes go to `layer` now (F1).
    pub(super) fn is_active_layer(&self, volume: VolumeId, layer: LayerId) -> bool {
        self.tops.get(volume) == Some(ActiveLayer { layer, held: false })
    }

    /// What blocks of a layer are that were unmap_mode: nothing, or zeros where something might shine through.
    pub(super) fn unmap_mode(&self, layer: LayerId) -> UnmapMode {
        match self.ledger.map.borrow().parent(layer) {
            Some(_) => UnmapMode::Zero,
            None => UnmapMode::Absent,
        }
    }

    /// Ends waits for writes that are held back.
    pub(super) fn wake_held_writes(&self) {
        self.tops.released.wake_all();
    }
}
