//! The ring's table of files: an operation on a slot saves the kernel a look-up and a reference count.
//!
//! Always true: a slot is emptied only when no operation names it, because every operation holds its file.

use std::rc::Weak;

use super::Uring;

/// Slots per ring. A drive that finds none left is used by its descriptor.
pub(super) const SLOTS: u32 = 256;

/// A file's place in the table of a ring; the place is given up with it.
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

/// Which slots are free.
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

    pub(super) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }
}
