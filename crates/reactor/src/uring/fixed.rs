//! The ring's table of registered files: an operation on a registered file saves the kernel a
//! look-up and a reference count.
//!
//! Invariant: a slot is cleared only when no operation uses it, because every operation holds its
//! file.

use std::rc::Weak;

use super::Uring;

/// Slots per ring. Further drives are used by descriptor.
pub(super) const SLOTS: u32 = 256;

/// A file's slot in a ring's table, released on drop.
pub(crate) struct FixedSlot {
    pub(super) index: u32,
    pub(super) ring: Weak<Uring>,
}

impl Drop for FixedSlot {
    fn drop(&mut self) {
        if let Some(ring) = self.ring.upgrade() {
            ring.release_slot(self.index);
        }
    }
}

/// The free slots of a table.
pub(super) struct FreeSlots {
    free: Vec<u32>,
}

impl FreeSlots {
    pub(super) fn new(slots: u32) -> Self {
        Self { free: (0..slots).rev().collect() }
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    pub(super) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }
}
