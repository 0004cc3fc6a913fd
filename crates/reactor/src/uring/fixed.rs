//! The free slots of a ring's table of registered files.

/// Slots per ring. Further drives are used by descriptor.
pub(super) const SLOTS: u32 = 256;

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
