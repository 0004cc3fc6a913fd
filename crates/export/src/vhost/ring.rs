//! A split virtqueue from the device's side (virtio 1.2, section 2.7).
//!
//! Always true: what the guest stored before it raised its index is seen, and what we wrote is seen before ours is; a
//! queue whose guest claims more than fits is broken and is not read again. Must not know what is in the chains.

use super::chain::DESCRIPTOR;
use super::limits::QUEUE_SIZE_MAX;
use super::mapping::Window;
use super::memory::GuestMemory;

/// The guest wants no interrupts (without event indexes).
const NO_INTERRUPT: u16 = 1;
/// We want no notifications (without event indexes).
const NO_NOTIFY: u16 = 1;
/// Bytes of flags and index in front of both rings.
const HEAD: usize = 4;
const INDEX: usize = 2;
/// Bytes of an entry of the used ring.
const USED: usize = 8;

/// Where the front end has put a queue, in its own addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) descriptors: u64,
    pub(super) available: u64,
    pub(super) used: u64,
    /// Where the guest sees the used ring, if changes of it are to be logged.
    pub(super) log: Option<u64>,
}

/// See the module.
pub(super) struct Ring {
    size: u16,
    descriptors: Window,
    available: Window,
    used: Window,
    event_index: bool,
    /// Index of the next entry of the available ring to look at.
    next: u16,
    /// The guest's index when it was last looked at.
    seen: u16,
    /// Index of the next entry of the used ring to write.
    ended: u16,
    /// Our index as the guest knows it.
    published: u16,
}

/// Why a queue cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadRing {
    #[error("a queue of {0} entries")]
    Size(u16),
    #[error("a queue that does not lie in the guest's memory as it should")]
    Place,
    #[error("the guest claims more requests than the queue has entries")]
    Overrun,
    #[error("the guest names a descriptor that the queue does not have")]
    Head,
    #[error("the front end has taken memory away that it shares")]
    Lost,
}

/// True if a queue can have this many entries.
pub(super) fn is_size(size: u16) -> bool {
    size.is_power_of_two() && size <= QUEUE_SIZE_MAX
}

impl Ring {
    /// The queue at these addresses, from the available entry `next` on.
    ///
    /// # Errors
    /// `Size`, `Place`.
    pub(super) fn new(
        addresses: &Addresses,
        size: u16,
        next: u16,
        event_index: bool,
        memory: &GuestMemory,
    ) -> Result<Self, BadRing> {
        if !is_size(size) {
            return Err(BadRing::Size(size));
        }
        let entries = usize::from(size);
        // The last field of both rings is there only with event indexes, but its place always is in practice.
        let window = |user, len, align| memory.window_at_user(user, len, align).ok_or(BadRing::Place);
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

    /// The same queue after the guest's memory was mapped anew.
    ///
    /// # Errors
    /// `Place` if it is no longer there.
    pub(super) fn moved(&self, addresses: &Addresses, memory: &GuestMemory) -> Result<Self, BadRing> {
        let new = Self::new(addresses, self.size, self.next, self.event_index, memory)?;
        Ok(Self { seen: self.seen, ended: self.ended, published: self.published, ..new })
    }

    /// The table of descriptors.
    pub(super) fn descriptors(&self) -> &Window {
        &self.descriptors
    }

    /// The available entry that comes next, for whoever goes on with the queue.
    pub(super) fn next(&self) -> u16 {
        self.next
    }

    /// Our index, as the guest knows it.
    pub(super) fn used_index(&self) -> u16 {
        self.published
    }

    /// Goes on from another available entry.
    pub(super) fn set_next(&mut self, next: u16) {
        self.next = next;
        self.seen = next;
    }

    /// The first descriptor of the next request, if there is one.
    ///
    /// # Errors
    /// `Overrun`, `Head`: the queue is broken.
    pub(super) fn pop(&mut self) -> Result<Option<u16>, BadRing> {
        if self.next == self.seen && !self.look()? {
            return Ok(None);
        }
        let at = HEAD + usize::from(self.next & (self.size - 1)) * 2;
        let head = self.available.load_16(at);
        if head >= self.size {
            return Err(BadRing::Head);
        }
        self.next = self.next.wrapping_add(1);
        Ok(Some(head))
    }

    /// Looks at the guest's index. True if there are requests.
    fn look(&mut self) -> Result<bool, BadRing> {
        let index = self.available.load_16(INDEX);
        if index.wrapping_sub(self.next) > self.size {
            return Err(BadRing::Overrun);
        }
        self.seen = index;
        Ok(self.seen != self.next)
    }

    /// Hands a request back, which wrote `len` bytes. The guest sees it after [`Ring::publish`].
    pub(super) fn push(&mut self, head: u16, len: u32) {
        let at = HEAD + usize::from(self.ended & (self.size - 1)) * USED;
        let entry = u64::from(head) | u64::from(len) << 32;
        self.used.write(at, entry.to_le_bytes());
        self.ended = self.ended.wrapping_add(1);
    }

    /// Bytes of the used ring.
    pub(super) fn used_bytes(&self) -> u64 {
        self.used.len() as u64
    }

    /// True if there is something to publish.
    pub(super) fn has_unpublished(&self) -> bool {
        self.published != self.ended
    }

    /// Lets the guest see what was handed back. True if it wants an interrupt for it.
    pub(super) fn publish(&mut self) -> bool {
        let before = std::mem::replace(&mut self.published, self.ended);
        self.used.store_16(INDEX, self.ended);
        // The index must be there before we look whether the guest has gone to sleep: it does the same, the other way round.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if !self.event_index {
            return self.available.load_16(0) & NO_INTERRUPT == 0;
        }
        let event = self.available.load_16(HEAD + usize::from(self.size) * 2);
        is_due(event, self.ended, before)
    }

    /// Asks the guest for a notification when it adds a request. True if there is none yet, and one will come.
    ///
    /// # Errors
    /// `Overrun`: the queue is broken.
    pub(super) fn arm(&mut self) -> Result<bool, BadRing> {
        if self.event_index {
            self.used.store_16(HEAD + usize::from(self.size) * USED, self.next);
        } else {
            self.used.store_16(0, 0);
        }
        // As in `publish`.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Ok(self.next == self.seen && !self.look()?)
    }

    /// Tells the guest that it need not notify us. With event indexes nothing is to be told: the one that it was given
    /// last lies behind it as soon as it has passed it.
    pub(super) fn disarm(&mut self) {
        if !self.event_index {
            self.used.store_16(0, NO_NOTIFY);
        }
    }
}

/// True if going from `before` to `now` passes `event` (`vring_need_event` of the specification).
fn is_due(event: u16, now: u16, before: u16) -> bool {
    now.wrapping_sub(event).wrapping_sub(1) < now.wrapping_sub(before)
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
