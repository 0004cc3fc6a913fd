//! A driver's side of a split virtqueue (virtio 1.2, section 2.7): polled, unless it is asked to wait for an interrupt.
//!
//! Always true: a chain is written before the index that shows it. Must not know what is in the chains.

use std::sync::Arc;

use super::shared::Shared;

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;
/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;
/// The driver wants no interrupts (without event indexes), the device no notifications.
const NONE_WANTED: u16 = 1;
/// Bytes of flags and index in front of both rings.
const HEAD: usize = 4;
const INDEX: usize = 2;
/// Bytes of an entry of the used ring.
const USED: usize = 8;
/// Requests after which the event index, which must stay behind, is moved on.
const MOVE_EVENT: u16 = 1 << 14;

/// Where a queue lies in the shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingLayout {
    pub(super) entries: u16,
    pub(super) table: usize,
    pub(super) available: usize,
    pub(super) used: usize,
}

impl RingLayout {
    /// A queue's parts from `at` on, each on pages of its own, and where they end.
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

/// See the module.
pub(super) struct Ring {
    memory: Arc<Shared>,
    place: RingLayout,
    event_index: bool,
    /// Index behind the last chain that was added.
    added: u16,
    /// The index as the device knows it.
    published: u16,
    /// Index behind the last chain that was taken back.
    seen: u16,
}

impl Ring {
    /// A queue in memory that is zero.
    pub(super) fn new(memory: Arc<Shared>, place: RingLayout, event_index: bool) -> Self {
        let mut ring = Self { memory, place, event_index, added: 0, published: 0, seen: 0 };
        ring.want_no_interrupts();
        ring
    }

    /// Asks for no more interrupts.
    pub(super) fn want_no_interrupts(&mut self) {
        if self.event_index {
            // The device interrupts when it passes the index: one that lies behind it never comes.
            let event = HEAD + usize::from(self.place.entries) * 2;
            self.memory.store_16(self.place.available + event, self.seen.wrapping_sub(1));
        } else {
            self.memory.store_16(self.place.available, NONE_WANTED);
        }
    }

    /// Entries of its table.
    pub(super) fn entries(&self) -> u16 {
        self.place.entries
    }

    pub(super) fn set(&self, index: u16, descriptor: Descriptor) {
        self.memory.write(self.place.table + usize::from(index) * DESCRIPTOR, descriptor.bytes());
    }

    /// Adds a chain. The device sees it after [`Ring::publish`].
    pub(super) fn add(&mut self, head: u16) {
        let at = HEAD + usize::from(self.added & (self.place.entries - 1)) * 2;
        self.memory.store_16(self.place.available + at, head);
        self.added = self.added.wrapping_add(1);
    }

    /// Shows the device what was added. True if it wants a notification for it.
    pub(super) fn publish(&mut self) -> bool {
        if self.added == self.published {
            return false;
        }
        let before = std::mem::replace(&mut self.published, self.added);
        self.memory.store_16(self.place.available + INDEX, self.added);
        // The index must be there before we look whether the device has gone to sleep: it does the same, the other way round.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if !self.event_index {
            return self.memory.load_16(self.place.used) & NONE_WANTED == 0;
        }
        let event = self.memory.load_16(self.place.used + HEAD + usize::from(self.place.entries) * USED);
        self.added.wrapping_sub(event).wrapping_sub(1) < self.added.wrapping_sub(before)
    }

    /// Asks for an interrupt for the next chain. True if one has ended meanwhile: there may be none for that one.
    pub(super) fn want_interrupt(&mut self) -> bool {
        if self.event_index {
            let event = HEAD + usize::from(self.place.entries) * 2;
            self.memory.store_16(self.place.available + event, self.seen);
        } else {
            self.memory.store_16(self.place.available, 0);
        }
        // The wish must be there before we look once more: the device does the same, the other way round.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.ended() > 0
    }

    /// How many chains can be taken back.
    pub(super) fn ended(&self) -> u16 {
        self.memory.load_16(self.place.used + INDEX).wrapping_sub(self.seen)
    }

    /// Takes a chain back, of those that [`Ring::ended`] counted. Gives its first descriptor.
    pub(super) fn take(&mut self) -> u16 {
        let at = HEAD + usize::from(self.seen & (self.place.entries - 1)) * USED;
        let entry = u64::from_le_bytes(self.memory.read(self.place.used + at));
        self.seen = self.seen.wrapping_add(1);
        if self.seen.is_multiple_of(MOVE_EVENT) {
            self.want_no_interrupts();
        }
        // The head is the lower half of the entry; a device that names one beyond is found out by who looks it up.
        u16::try_from(entry & u64::from(u32::MAX)).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
