//! The layer that each volume writes to in this shard, and switching it in all shards at one point
//! in time.
//!
//! A snapshot freezes a volume's layer and puts an empty one above it. First every shard holds the
//! volume's writes; only when all do (F2), each switches to the new layer. So if the old layer
//! lacks a write, it also lacks every write that was issued after that one had completed. The same
//! holds for the old layers of several volumes whose snapshots are taken together: no volume
//! switches before all of them are held. Requests queued before the switch still go to the old
//! layer; the snapshot waits for them, not the writers.

use std::cell::RefCell;

use format::{LayerId, UnmapMode, VolumeId};
use reactor::WaitList;

use super::Shard;
use crate::error::{Error, ErrorKind, Result};
use crate::write_waits::WriteWait;

/// The active layers of the volumes of a shard.
#[derive(Default)]
pub(super) struct ActiveLayers {
    /// Indexed by volume number.
    active_layers: RefCell<Vec<Option<ActiveLayer>>>,
    released: WaitList,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ActiveLayer {
    layer: LayerId,
    /// Writes of the volume wait.
    held: bool,
}

impl ActiveLayers {
    fn get(&self, volume: VolumeId) -> Option<ActiveLayer> {
        self.active_layers.borrow().get(volume.get() as usize).copied().flatten()
    }

    fn set(&self, volume: VolumeId, active: Option<ActiveLayer>) {
        let mut active_layers = self.active_layers.borrow_mut();
        let at = volume.get() as usize;
        if active_layers.len() <= at {
            active_layers.resize(at + 1, None);
        }
        if let Some(place) = active_layers.get_mut(at) {
            *place = active;
        }
        drop(active_layers);
        self.released.wake_all();
    }
}

impl Shard {
    /// Makes `layer`, which lies above `parent`, the active layer of a volume, and resumes its
    /// writes if they were held.
    pub(crate) fn set_active_layer(&self, volume: VolumeId, layer: LayerId, parent: Option<LayerId>) {
        self.ledger.map.borrow_mut().set_parent(layer, parent);
        self.active_layers.set(volume, Some(ActiveLayer { layer, held: false }));
    }

    /// Replaces the parent of a layer; the layer's visible contents stay the same.
    pub(crate) fn set_parent(&self, layer: LayerId, parent: Option<LayerId>) {
        self.ledger.map.borrow_mut().set_parent(layer, parent);
    }

    /// Sets the weight of a volume in the fair schedulers.
    pub(crate) fn set_weight(&self, volume: VolumeId, weight: u16) {
        self.reads.set_weight(volume, weight);
        self.writes.set_weight(volume, weight);
    }

    /// Reserves space for `blocks` blocks of a layer; 0 ends the reservation.
    pub(crate) fn reserve_layer(&self, layer: LayerId, blocks: u64) {
        let reserved = {
            let mut map = self.ledger.map.borrow_mut();
            map.set_reservation(layer, blocks);
            map.unused_reservations()
        };
        let live = self.rows.segments.borrow().live_blocks();
        self.log.pacer.space.set_usage(self.identity.shard.index(), live, reserved);
    }

    /// Returns true if more space is reserved than the pool has.
    pub(crate) fn is_overcommitted(&self) -> bool {
        self.log.pacer.space.is_overcommitted()
    }

    /// Forgets a deleted volume; no layer lies above its layer any more.
    pub(crate) fn forget_volume(&self, volume: VolumeId) {
        if let Some(active) = self.active_layers.get(volume) {
            self.ledger.map.borrow_mut().set_parent(active.layer, None);
        }
        self.active_layers.set(volume, None);
    }

    /// Holds the writes of a volume, or resumes them.
    pub(crate) fn hold_writes(&self, volume: VolumeId, held: bool) {
        if let Some(active) = self.active_layers.get(volume) {
            self.active_layers.set(volume, Some(ActiveLayer { held, ..active }));
        }
    }

    /// Returns the active layer of a volume.
    pub(super) fn layer_of(&self, volume: VolumeId) -> Result<LayerId> {
        match self.active_layers.get(volume) {
            Some(active) => Ok(active.layer),
            None => Err(Error::new(ErrorKind::Closed, "the volume was deleted")),
        }
    }

    /// Returns the layer that a volume writes to, as soon as its writes are not held.
    ///
    /// # Errors
    /// `Closed` if the volume was deleted; the log's failure if its writes are still held then.
    pub(crate) async fn layer_for_writing(&self, volume: VolumeId) -> Result<LayerId> {
        if let Some(ActiveLayer { layer, held: false }) = self.active_layers.get(volume) {
            return Ok(layer);
        }
        let _wait = self.waits.begin(WriteWait::Snapshot);
        let may_proceed = || {
            !self.active_layers.get(volume).is_some_and(|active| active.held) || self.log.failure().is_some()
        };
        self.active_layers.released.until(|| may_proceed().then_some(())).await;
        match (self.active_layers.get(volume), self.log.failure()) {
            // Callers retry without a pause until the layer is active, which may never happen.
            (Some(ActiveLayer { held: true, .. }), Some(failure)) => Err(failure),
            _ => self.layer_of(volume),
        }
    }

    /// Returns true if a volume's writes go to `layer` now (F1).
    pub(super) fn is_active_layer(&self, volume: VolumeId, layer: LayerId) -> bool {
        self.active_layers.get(volume) == Some(ActiveLayer { layer, held: false })
    }

    /// Returns the mode in which blocks of a layer are unmapped: absent, or zeros if a parent layer
    /// might become visible.
    pub(super) fn unmap_mode(&self, layer: LayerId) -> UnmapMode {
        match self.ledger.map.borrow().parent(layer) {
            Some(_) => UnmapMode::Zero,
            None => UnmapMode::Absent,
        }
    }

    /// Wakes writes that are held, after a failure.
    pub(super) fn wake_held_writes(&self) {
        self.active_layers.released.wake_all();
    }
}
