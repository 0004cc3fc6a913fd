//! Allocation of volume numbers. A number is not reused while a handle on its previous volume
//! exists.
//!
//! Requests refer to their volume by number. A request that was issued before the volume was
//! deleted must find no volume under the number afterwards, and never another volume (F5).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use format::VolumeId;
use format::limits::VOLUMES_MAX;

use super::VolumeShared;

/// Numbers of deleted volumes with existing handles.
#[derive(Default)]
pub(super) struct RetiredIds {
    retired: BTreeMap<VolumeId, Weak<VolumeShared>>,
    /// The number that was allocated last. The search continues after it.
    last: u32,
}

impl RetiredIds {
    /// Retires the number of a deleted volume, on which handles may exist.
    pub(super) fn retire(&mut self, volume: &Arc<VolumeShared>) {
        self.retired.insert(volume.id, Arc::downgrade(volume));
    }

    /// Returns a number that neither a volume nor a handle uses, or `None` if all are in use.
    pub(super) fn next_free(&mut self, is_used: impl Fn(VolumeId) -> bool) -> Option<VolumeId> {
        self.retired.retain(|_, volume| volume.strong_count() > 0);
        let numbers = (self.last + 1..VOLUMES_MAX).chain(1..=self.last).map(VolumeId::new);
        let free = numbers.into_iter().find(|id| !is_used(*id) && !self.retired.contains_key(id))?;
        self.last = free.get();
        Some(free)
    }
}

#[cfg(test)]
#[path = "retired_tests.rs"]
mod tests;
