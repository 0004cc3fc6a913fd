//! RingDescriptor chains: the guest memory of a request (virtio 1.2, section 2.7).
//!
//! Always true: a walk ends for any guest memory. Each descriptor is read once, so that the checked
//! value is the used value. All collected segments are in the guest's memory. Must not know the
//! meaning of a request.

use super::limits::DESCRIPTORS_MAX;
use super::mapping::Window;
use super::memory::{GuestMemory, GuestSegments};

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// The guest memory of one request.
#[derive(Default)]
pub(super) struct Chain {
    /// Segments that the device reads.
    pub(super) readable: GuestSegments,
    /// Segments that the device writes.
    pub(super) writable: GuestSegments,
}

/// An invalid descriptor chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChainError {
    #[error("the chain refers to a descriptor beyond the queue's table")]
    Index,
    #[error("the chain is a loop or too long")]
    Endless,
    #[error("the chain refers to an address outside of the guest's memory")]
    Address,
    #[error("the chain has a readable descriptor after a writable one")]
    Order,
    #[error("the chain has an indirect table in an invalid place or of an invalid size")]
    Indirect,
}

/// A descriptor.
#[derive(Clone, Copy, Debug)]
struct RingDescriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl RingDescriptor {
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
    /// Collects the memory of the chain that begins at descriptor `head`.
    ///
    /// # Errors
    /// Returns the first error. The memory after the error is collected as far as possible, so that
    /// the request can still be completed with a status.
    pub(super) fn walk(&mut self, table: &Window, head: u16, memory: &GuestMemory) -> Result<(), ChainError> {
        self.readable.clear();
        self.writable.clear();
        let mut left = DESCRIPTORS_MAX;
        let mut result = Ok(());
        let mut index = head;
        loop {
            let at = usize::from(index) * DESCRIPTOR;
            if at >= table.len() {
                return result.and(Err(ChainError::Index));
            }
            left = left.checked_sub(1).ok_or(ChainError::Endless)?;
            let descriptor = RingDescriptor::decode(table.read(at));
            if descriptor.has(INDIRECT) {
                // An indirect descriptor ends its chain.
                let more = if descriptor.has(NEXT) { Err(ChainError::Indirect) } else { Ok(()) };
                return result.and(self.walk_table(&descriptor, left, memory)).and(more);
            }
            result = result.and(self.add(&descriptor, memory));
            if !descriptor.has(NEXT) {
                return result;
            }
            index = descriptor.next;
        }
    }

    /// Collects the memory that an indirect table refers to.
    fn walk_table(
        &mut self,
        indirect: &RingDescriptor,
        most: usize,
        memory: &GuestMemory,
    ) -> Result<(), ChainError> {
        let count = indirect.len as usize / DESCRIPTOR;
        if !(indirect.len as usize).is_multiple_of(DESCRIPTOR) || count == 0 {
            return Err(ChainError::Indirect);
        }
        let mut left = most.min(count);
        let mut result = Ok(());
        let mut index = 0;
        loop {
            if usize::from(index) >= count {
                return result.and(Err(ChainError::Index));
            }
            left = left.checked_sub(1).ok_or(ChainError::Endless)?;
            let skip = u64::from(index) * DESCRIPTOR as u64;
            let mut bytes = [0; DESCRIPTOR];
            let address = indirect.address.checked_add(skip).ok_or(ChainError::Address)?;
            if !memory.read_at(address, &mut bytes) {
                return Err(ChainError::Address);
            }
            let descriptor = RingDescriptor::decode(bytes);
            let nested = if descriptor.has(INDIRECT) { Err(ChainError::Indirect) } else { Ok(()) };
            result = result.and(nested).and(self.add(&descriptor, memory));
            if !descriptor.has(NEXT) {
                return result;
            }
            index = descriptor.next;
        }
    }

    fn add(&mut self, descriptor: &RingDescriptor, memory: &GuestMemory) -> Result<(), ChainError> {
        if descriptor.has(WRITE) {
            let found = memory.locate(descriptor.address, descriptor.len, &mut self.writable);
            return if found { Ok(()) } else { Err(ChainError::Address) };
        }
        if !self.writable.is_empty() {
            return Err(ChainError::Order);
        }
        let found = memory.locate(descriptor.address, descriptor.len, &mut self.readable);
        if found { Ok(()) } else { Err(ChainError::Address) }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
