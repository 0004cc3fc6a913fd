//! Numbers of volumes: none is given to a new volume while a handle on its last user lives.
//!
//! A request names its volume by number. One that was made before the volume was deleted, and waits, must find nothing under
//! the number afterwards, never another volume (F5).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use format::VolumeId;
use format::limits::VOLUMES_MAX;

use super::VolumeShared;

/// See the module.
#[derive(Default)]
pub(super) struct RetiredIds {
    retired: BTreeMap<VolumeId, Weak<VolumeShared>>,
    /// The number that was given out last: the others come first.
    last: u32,
}

impl RetiredIds {
    /// The volume is gone; handles on it may not be.
    pub(super) fn retire(&mut self, volume: &Arc<VolumeShared>) {
        self.retired.insert(volume.id, Arc::downgrade(volume));
    }

    /// A number that neither a volume nor a handle uses; `None` if there is none.
    pub(super) fn next_free(&mut self, is_used: impl Fn(VolumeId) -> bool) -> Option<VolumeId> {
        self.retired.retain(|_, volume| volume.strong_count() > 0);
        let numbers = (self.last + 1..VOLUMES_MAX).chain(1..=self.last).map(VolumeId::new);
        let free = numbers.into_iter().find(|id| !is_used(*id) && !self.retired.contains_key(id))?;
        self.last = free.get();
        Some(free)
    }
}
