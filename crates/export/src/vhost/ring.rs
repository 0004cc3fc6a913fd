//! A split virtqueue, device side (virtio 1.2, section 2.7).
//!
//! Always true: writes of the guest before its index are visible after the index is read, and our
//! writes before our index are visible to the guest. A queue with more available requests than
//! entries is broken and not read again. Must not know the content of chains.

use super::chain::DESCRIPTOR;
use super::limits::QUEUE_SIZE_MAX;
use super::mapping::Window;
use super::memory::GuestMemory;

/// The guest requests no interrupts (without event indexes).
const NO_INTERRUPT: u16 = 1;
/// The device requests no notifications (without event indexes).
const NO_NOTIFY: u16 = 1;
/// Bytes of flags and index before both rings.
const HEAD: usize = 4;
const INDEX: usize = 2;
/// Bytes of an entry of the used ring.
const USED: usize = 8;

/// The addresses of a queue, in the front end's address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RingAddresses {
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
    /// Guest address of the used ring, if its changes are logged.
    pub(super) log: Option<u64>,
}

/// The rings of a queue and the device's position in them.
pub(super) struct Ring {
    size: u16,
    descriptors: Window,
    available: Window,
    used: Window,
    event_index: bool,
    /// Index of the next entry of the available ring.
    next: u16,
    /// The guest's index when it was last read.
    seen: u16,
    /// Index of the next entry of the used ring.
    ended: u16,
    /// Our index as the guest knows it.
    published: u16,
}

/// An error that makes a queue unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RingError {
    #[error("invalid queue size: {0} entries")]
    Size(u16),
    #[error("a ring is misaligned or outside of the guest's memory")]
    Location,
    #[error("the guest made more requests available than the queue has entries")]
    Overrun,
    #[error("the guest made a descriptor available that the queue does not have")]
    Head,
    #[error("the front end has removed memory that it shares")]
    Lost,
}

/// Returns true if a queue can have this many entries.
pub(super) fn is_size(size: u16) -> bool {
    size.is_power_of_two() && size <= QUEUE_SIZE_MAX
}

impl Ring {
    /// Creates the queue at these addresses. Continues at the available entry `next`.
    ///
    /// # Errors
    /// `Size`, `Location`.
    pub(super) fn new(
        addresses: &RingAddresses,
        size: u16,
        next: u16,
        event_index: bool,
        memory: &GuestMemory,
    ) -> Result<Self, RingError> {
        if !is_size(size) {
            return Err(RingError::Size(size));
        }
        let entries = usize::from(size);
        // The event fields exist only with event indexes, but in practice their space always does.
        let window = |user, len, align| memory.window_at_user(user, len, align).ok_or(RingError::Location);
        let event = if event_index { 2 } else { 0 };
        let descriptors = window(addresses.descriptors, entries * DESCRIPTOR, 16)?;
        let available = window(addresses.available, HEAD + entries * 2 + event, 2)?;
        let used = window(addresses.used, HEAD + entries * USED + event, 4)?;
        let ended = used.load_16(INDEX);
        Ok(Self {
            size,
            descriptors,
            available,
            used,
            event_index,
            next,
            seen: next,
            ended,
            published: ended,
        })
    }

    /// Returns the same queue after the guest's memory was mapped again.
    ///
    /// # Errors
    /// `Location` if the rings are not in the new memory.
    pub(super) fn remapped(
        &self,
        addresses: &RingAddresses,
        memory: &GuestMemory,
    ) -> Result<Self, RingError> {
        let new = Self::new(addresses, self.size, self.next, self.event_index, memory)?;
        Ok(Self { seen: self.seen, ended: self.ended, published: self.published, ..new })
    }

    /// Returns the descriptor table.
    pub(super) fn descriptors(&self) -> &Window {
        &self.descriptors
    }

    /// Returns the next available entry, for the next process or front end that serves the queue.
    pub(super) fn next(&self) -> u16 {
        self.next
    }

    /// Returns our index as the guest knows it.
    pub(super) fn used_index(&self) -> u16 {
        self.published
    }

    /// Continues at another available entry.
    pub(super) fn set_next(&mut self, next: u16) {
        self.next = next;
        self.seen = next;
    }

    /// Returns the first descriptor of the next request, if there is one.
    ///
    /// # Errors
    /// `Overrun`, `Head`: the queue is broken.
    pub(super) fn pop(&mut self) -> Result<Option<u16>, RingError> {
        if self.next == self.seen && !self.refresh_index()? {
            return Ok(None);
        }
        let at = HEAD + usize::from(self.next & (self.size - 1)) * 2;
        let head = self.available.load_16(at);
        if head >= self.size {
            return Err(RingError::Head);
        }
        self.next = self.next.wrapping_add(1);
        Ok(Some(head))
    }

    /// Reads the guest's index. Returns true if there are requests.
    fn refresh_index(&mut self) -> Result<bool, RingError> {
        let index = self.available.load_16(INDEX);
        if index.wrapping_sub(self.next) > self.size {
            return Err(RingError::Overrun);
        }
        self.seen = index;
        Ok(self.seen != self.next)
    }

    /// Adds a completed request that wrote `len` bytes. The guest sees it after [`Ring::publish`].
    pub(super) fn push(&mut self, head: u16, len: u32) {
        let at = HEAD + usize::from(self.ended & (self.size - 1)) * USED;
        let entry = u64::from(head) | u64::from(len) << 32;
        self.used.write(at, entry.to_le_bytes());
        self.ended = self.ended.wrapping_add(1);
    }

    /// Returns the bytes of the used ring.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used.len() as u64
    }

    /// Returns true if completed requests are not published yet.
    pub(super) fn has_unpublished(&self) -> bool {
        self.published != self.ended
    }

    /// Publishes completed requests. Returns true if the guest requests an interrupt for them.
    pub(super) fn publish(&mut self) -> bool {
        let before = std::mem::replace(&mut self.published, self.ended);
        self.used.store_16(INDEX, self.ended);
        // The index must be stored before we check whether the guest sleeps. The guest does the
        // same in the opposite order.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if !self.event_index {
            return self.available.load_16(0) & NO_INTERRUPT == 0;
        }
        let event = self.available.load_16(HEAD + usize::from(self.size) * 2);
        needs_event(event, self.ended, before)
    }

    /// Requests a notification for the next request. Returns true if none is available yet, so that
    /// a notification will come.
    ///
    /// # Errors
    /// `Overrun`: the queue is broken.
    pub(super) fn arm(&mut self) -> Result<bool, RingError> {
        if self.event_index {
            self.used.store_16(HEAD + usize::from(self.size) * USED, self.next);
        } else {
            self.used.store_16(0, 0);
        }
        // As in `publish`.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Ok(self.next == self.seen && !self.refresh_index()?)
    }

    /// Tells the guest that notifications are not needed. With event indexes this needs no store:
    /// the guest ignores an event index that it has passed.
    pub(super) fn disarm(&mut self) {
        if !self.event_index {
            self.used.store_16(0, NO_NOTIFY);
        }
    }
}

/// Returns true if the step from `before` to `now` passes `event` (`vring_need_event` of the
/// specification).
fn needs_event(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
