//! Chains of descriptors: what memory a request names, as the virtio specification has it (1.2, section 2.7).
//!
//! Always true: a walk ends, whatever the guest has put there; every descriptor is read once, so that what is checked is
//! what is used; what is found lies in the guest's memory. Must not know what a request means.

use super::limits::DESCRIPTORS_MAX;
use super::mapping::Window;
use super::memory::{GuestMemory, Pieces};

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// The memory of one request.
#[derive(Default)]
pub(super) struct Chain {
    /// What the device reads.
    pub(super) readable: Pieces,
    /// What the device writes.
    pub(super) writable: Pieces,
}

/// What is wrong with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadChain {
    #[error("a chain names a descriptor that the queue does not have")]
    Index,
    #[error("a chain is a loop, or longer than any")]
    Endless,
    #[error("a chain names addresses that are no memory")]
    Address,
    #[error("a chain has what the device reads behind what it writes")]
    Order,
    #[error("a chain has an indirect table where none may be, or one of a size that no table has")]
    Indirect,
}

/// A descriptor.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn decode(bytes: [u8; DESCRIPTOR]) -> Self {
        let number = u128::from_le_bytes(bytes);
        #[allow(clippy::cast_possible_truncation, reason = "the parts of a descriptor, in their order")]
        Self {
            address: number as u64,
            len: (number >> 64) as u32,
            flags: (number >> 96) as u16,
            next: (number >> 112) as u16,
        }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Chain {
    /// Collects the memory that the chain from descriptor `head` on names.
    ///
    /// # Errors
    /// The first thing that is wrong with it. What is behind that was collected all the same as far as it could be, so
    /// that the guest may be answered.
    pub(super) fn walk(&mut self, table: &Window, head: u16, memory: &GuestMemory) -> Result<(), BadChain> {
        self.readable.clear();
        self.writable.clear();
        let mut left = DESCRIPTORS_MAX;
        let mut result = Ok(());
        let mut index = head;
        loop {
            let at = usize::from(index) * DESCRIPTOR;
            if at >= table.len() {
                return result.and(Err(BadChain::Index));
            }
            left = left.checked_sub(1).ok_or(BadChain::Endless)?;
            let descriptor = Descriptor::decode(table.read(at));
            if descriptor.has(INDIRECT) {
                // It is the last of its chain.
                let more = if descriptor.has(NEXT) { Err(BadChain::Indirect) } else { Ok(()) };
                return result.and(self.walk_table(&descriptor, left, memory)).and(more);
            }
            result = result.and(self.add(&descriptor, memory));
            if !descriptor.has(NEXT) {
                return result;
            }
            index = descriptor.next;
        }
    }

    /// Collects what an indirect table names.
    fn walk_table(
        &mut self,
        indirect: &Descriptor,
        most: usize,
        memory: &GuestMemory,
    ) -> Result<(), BadChain> {
        let count = indirect.len as usize / DESCRIPTOR;
        if !(indirect.len as usize).is_multiple_of(DESCRIPTOR) || count == 0 {
            return Err(BadChain::Indirect);
        }
        let mut left = most.min(count);
        let mut result = Ok(());
        let mut index = 0;
        loop {
            if usize::from(index) >= count {
                return result.and(Err(BadChain::Index));
            }
            left = left.checked_sub(1).ok_or(BadChain::Endless)?;
            let skip = u64::from(index) * DESCRIPTOR as u64;
            let mut bytes = [0; DESCRIPTOR];
            let address = indirect.address.checked_add(skip).ok_or(BadChain::Address)?;
            if !memory.read_at(address, &mut bytes) {
                return Err(BadChain::Address);
            }
            let descriptor = Descriptor::decode(bytes);
            let nested = if descriptor.has(INDIRECT) { Err(BadChain::Indirect) } else { Ok(()) };
            result = result.and(nested).and(self.add(&descriptor, memory));
            if !descriptor.has(NEXT) {
                return result;
            }
            index = descriptor.next;
        }
    }

    fn add(&mut self, descriptor: &Descriptor, memory: &GuestMemory) -> Result<(), BadChain> {
        if descriptor.has(WRITE) {
            let found = memory.locate(descriptor.address, descriptor.len, &mut self.writable);
            return if found { Ok(()) } else { Err(BadChain::Address) };
        }
        if !self.writable.is_empty() {
            return Err(BadChain::Order);
        }
        let found = memory.locate(descriptor.address, descriptor.len, &mut self.readable);
        if found { Ok(()) } else { Err(BadChain::Address) }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
