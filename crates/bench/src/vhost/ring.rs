//! The driver side of a split virtqueue (virtio 1.2, section 2.7): polled, unless an interrupt is
//! requested.
//!
//! Invariant: a chain is written before the index that publishes it.

use std::sync::Arc;

use super::shared::SharedMemory;

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;
/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;
/// Flag that suppresses interrupts (without event indexes) or notifications.
const SUPPRESS: u16 = 1;
/// Bytes of flags and index at the start of both rings.
const RING_HEADER: usize = 4;
const INDEX: usize = 2;
/// Bytes of an entry of the used ring.
const USED: usize = 8;
/// Requests after which the event index, which must stay in the past, is updated.
const EVENT_UPDATE_INTERVAL: u16 = 1 << 14;

/// The position of a queue in the shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    pub(super) entries: u16,
    pub(super) table: usize,
    pub(super) available: usize,
    pub(super) used: usize,
}

impl RingLayout {
    /// Returns the layout of a queue from offset `at`, with each part on its own pages, and its
    /// end.
    pub(super) fn from(at: usize, entries: u16) -> (Self, usize) {
        let table = at.next_multiple_of(4096);
        let available = (table + usize::from(entries) * DESCRIPTOR).next_multiple_of(4096);
        let used = (available + usize::from(entries) * 2 + 6).next_multiple_of(4096);
        (Self { entries, table, available, used }, used + usize::from(entries) * USED + 6)
    }
}

/// A descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

impl Descriptor {
    pub(super) fn bytes(&self) -> [u8; DESCRIPTOR] {
        let high = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        (u128::from(self.address) | u128::from(high) << 64).to_le_bytes()
    }
}

/// The driver side of a queue; see the module documentation.
pub(super) struct Ring {
    memory: Arc<SharedMemory>,
    place: RingLayout,
    event_index: bool,
    /// Index after the last added chain.
    added: u16,
    /// The published index.
    published: u16,
    /// Index after the last chain taken back.
    seen: u16,
}

impl Ring {
    /// Returns a queue in zeroed memory.
    pub(super) fn new(memory: Arc<SharedMemory>, place: RingLayout, event_index: bool) -> Self {
        let mut ring = Self { memory, place, event_index, added: 0, published: 0, seen: 0 };
        ring.want_no_interrupts();
        ring
    }

    /// Suppresses interrupts.
    pub(super) fn want_no_interrupts(&mut self) {
        if self.event_index {
            // The device interrupts when it passes the index: an index in the past suppresses
            // interrupts.
            let event = RING_HEADER + usize::from(self.place.entries) * 2;
            self.memory.store_16(self.place.available + event, self.seen.wrapping_sub(1));
        } else {
            self.memory.store_16(self.place.available, SUPPRESS);
        }
    }

    /// Returns the number of table entries.
    pub(super) fn entries(&self) -> u16 {
        self.place.entries
    }

    pub(super) fn set(&self, index: u16, descriptor: Descriptor) {
        self.memory.write(self.place.table + usize::from(index) * DESCRIPTOR, descriptor.bytes());
    }

    /// Adds a chain, which the device sees after [`Ring::publish`].
    pub(super) fn add(&mut self, head: u16) {
        let at = RING_HEADER + usize::from(self.added & (self.place.entries - 1)) * 2;
        self.memory.store_16(self.place.available + at, head);
        self.added = self.added.wrapping_add(1);
    }

    /// Publishes the added chains. True if the device wants a notification.
    pub(super) fn publish(&mut self) -> bool {
        if self.added == self.published {
            return false;
        }
        let before = std::mem::replace(&mut self.published, self.added);
        self.memory.store_16(self.place.available + INDEX, self.added);
        // The index must be visible before the check for a sleeping device, which does the same in
        // reverse order.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if !self.event_index {
            return self.memory.load_16(self.place.used) & SUPPRESS == 0;
        }
        let event =
            self.memory.load_16(self.place.used + RING_HEADER + usize::from(self.place.entries) * USED);
        self.added.wrapping_sub(event).wrapping_sub(1) < self.added.wrapping_sub(before)
    }

    /// Requests an interrupt for the next completion. True if a chain has already completed, for
    /// which no interrupt may come.
    pub(super) fn want_interrupt(&mut self) -> bool {
        if self.event_index {
            let event = RING_HEADER + usize::from(self.place.entries) * 2;
            self.memory.store_16(self.place.available + event, self.seen);
        } else {
            self.memory.store_16(self.place.available, 0);
        }
        // The request must be visible before the second check: the device does the same in reverse
        // order.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.ended() > 0
    }

    /// Returns the number of completed chains.
    pub(super) fn ended(&self) -> u16 {
        self.memory.load_16(self.place.used + INDEX).wrapping_sub(self.seen)
    }

    /// Takes back a completed chain, as counted by [`Ring::ended`]. Returns its first descriptor.
    pub(super) fn take(&mut self) -> u16 {
        let at = RING_HEADER + usize::from(self.seen & (self.place.entries - 1)) * USED;
        let entry = u64::from_le_bytes(self.memory.read(self.place.used + at));
        self.seen = self.seen.wrapping_add(1);
        if self.seen.is_multiple_of(EVENT_UPDATE_INTERVAL) {
            self.want_no_interrupts();
        }
        // The head is the lower half of the entry; the caller detects a head out of range.
        u16::try_from(entry & u64::from(u32::MAX)).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
