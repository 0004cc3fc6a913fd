//! A guest's memory: which of the guest's addresses lie where in what it shares with us.
//!
//! Always true: a table never changes; a new one is made instead, and whoever uses the old one keeps it mapped. Must not
//! know queues and requests.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use reactor::Span;
use smallvec::SmallVec;

use super::limits::REGIONS_MAX;
use super::mapping::{Hold, Mapping, Window};

/// A region as a front end describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionLayout {
    /// Where the guest sees it.
    pub(super) guest: u64,
    /// Where the front end sees it: rings are named by these addresses.
    pub(super) user: u64,
    /// Bytes.
    pub(super) len: u64,
    /// Where in its file it starts.
    pub(super) offset: u64,
}

/// A run of a guest's memory that lies in one piece in ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    region: u32,
    pub(super) len: u32,
    at: usize,
}

/// Runs of a guest's memory, one after the other. Most requests have one.
pub(super) type Pieces = SmallVec<[Piece; 4]>;

/// See the module.
#[derive(Clone)]
pub(super) struct GuestMemory {
    regions: Arc<Vec<RegionLayout>>,
    hold: Hold,
}

/// Memory that a front end shares cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemoryError {
    #[error("the memory at {guest:#x} cannot be mapped: {source}")]
    Map { guest: u64, source: io::Error },
    #[error("the memory at {0:#x} overlaps with other memory, or wraps around")]
    Overlap(u64),
    #[error("more than {REGIONS_MAX} memory regions")]
    TooMany,
    #[error("there is no memory region of {len:#x} bytes at {guest:#x}")]
    Unknown { guest: u64, len: u64 },
}

impl GuestMemory {
    /// No memory at all.
    pub(super) fn empty() -> Self {
        Self { regions: Arc::default(), hold: Hold::new(Vec::new()) }
    }

    /// The same table with a region more.
    ///
    /// # Errors
    /// When the region overlaps with others, there are too many, or its file cannot be mapped.
    pub(super) fn with(&self, region: RegionLayout, file: BorrowedFd<'_>) -> Result<Self, MemoryError> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(MemoryError::TooMany);
        }
        let overlaps = |other: &RegionLayout| meets(region.guest, other.guest, region.len, other.len);
        let wraps = [region.guest, region.user].iter().any(|start| start.checked_add(region.len).is_none());
        if wraps || self.regions.iter().any(overlaps) {
            return Err(MemoryError::Overlap(region.guest));
        }
        let mapping = Mapping::new(file, region.offset, region.len)
            .map_err(|source| MemoryError::Map { guest: region.guest, source })?;
        let mut regions = self.regions.to_vec();
        let mut mappings = self.mappings();
        regions.push(region);
        mappings.push(Arc::new(mapping));
        Ok(Self { regions: Arc::new(regions), hold: Hold::new(mappings) })
    }

    /// The same table without a region.
    ///
    /// # Errors
    /// When there is no such region.
    pub(super) fn without(&self, guest: u64, user: u64, len: u64) -> Result<Self, MemoryError> {
        let is_it = |region: &RegionLayout| (region.guest, region.user, region.len) == (guest, user, len);
        let Some(index) = self.regions.iter().position(is_it) else {
            return Err(MemoryError::Unknown { guest, len });
        };
        let mut regions = self.regions.to_vec();
        let mut mappings = self.mappings();
        regions.remove(index);
        mappings.remove(index);
        Ok(Self { regions: Arc::new(regions), hold: Hold::new(mappings) })
    }

    /// True if memory of it was missing when it was touched: the front end has taken it away.
    pub(super) fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    fn mappings(&self) -> Vec<Arc<Mapping>> {
        (0..self.regions.len()).filter_map(|index| self.hold.get(index).cloned()).collect()
    }

    /// The same table for a user on another core.
    pub(super) fn apart(&self) -> Self {
        Self { regions: self.regions.clone(), hold: self.hold.apart() }
    }

    /// Appends where the guest's bytes from `guest` on lie. False if not all of them are memory.
    pub(super) fn locate(&self, guest: u64, len: u32, into: &mut Pieces) -> bool {
        let (mut guest, mut left) = (guest, len);
        while left > 0 {
            let Some(piece) = self.longest(guest, left) else { return false };
            guest = guest.wrapping_add(piece.len.into());
            left -= piece.len;
            match into.last_mut() {
                Some(last) if last.goes_on_with(&piece) => last.len += piece.len,
                _ => into.push(piece),
            }
        }
        true
    }

    /// As much as lies in one region of the guest's bytes from `guest` on.
    fn longest(&self, guest: u64, len: u32) -> Option<Piece> {
        for (index, region) in self.regions.iter().enumerate() {
            let skip = guest.wrapping_sub(region.guest);
            if skip < region.len {
                let len = u32::try_from(region.len - skip).map_or(len, |most| most.min(len));
                let at = usize::try_from(skip).ok()?;
                return Some(Piece { region: u32::try_from(index).ok()?, len, at });
            }
        }
        None
    }

    /// A structure of `len` bytes at the front end's address `user`, with the alignment that it must have.
    pub(super) fn window_at_user(&self, user: u64, len: usize, align: usize) -> Option<Window> {
        let inside = |region: &RegionLayout| user.wrapping_sub(region.user) < region.len;
        let index = self.regions.iter().position(inside)?;
        let skip = user - self.regions.get(index)?.user;
        self.hold.window(index, usize::try_from(skip).ok()?, len, align)
    }

    /// A handle for I/O on a piece of this table.
    pub(super) fn span(&self, piece: &Piece) -> Span {
        match self.hold.span(piece.region as usize, piece.at, piece.len as usize) {
            Some(span) => span,
            None => panic!("a piece of another table"),
        }
    }

    /// Copies the guest's bytes at `guest`. False if they do not lie in one region.
    pub(super) fn read_at(&self, guest: u64, into: &mut [u8]) -> bool {
        let Ok(len) = u32::try_from(into.len()) else { return false };
        self.longest(guest, len).is_some_and(|piece| self.read(&piece, into))
    }

    /// Copies a piece's first bytes. False if it is shorter.
    pub(super) fn read(&self, piece: &Piece, into: &mut [u8]) -> bool {
        let mapping = self.hold.get(piece.region as usize);
        into.len() <= piece.len as usize && mapping.is_some_and(|mapping| mapping.copy_out(piece.at, into))
    }

    /// Writes a piece's first byte. False if it has none.
    pub(super) fn write_byte(&self, piece: &Piece, value: u8) -> bool {
        let mapping = self.hold.get(piece.region as usize);
        piece.len > 0 && mapping.is_some_and(|mapping| mapping.set_byte(piece.at, value))
    }

    /// Where the guest sees a piece.
    pub(super) fn guest_address(&self, piece: &Piece) -> u64 {
        self.regions.get(piece.region as usize).map_or(0, |region| region.guest + piece.at as u64)
    }
}

impl Piece {
    /// True if `next` lies right behind.
    fn goes_on_with(&self, next: &Self) -> bool {
        self.region == next.region
            && self.at + self.len as usize == next.at
            && self.len.checked_add(next.len).is_some()
    }

    /// Its first `len` bytes, and the rest.
    pub(super) fn split(&self, len: u32) -> (Self, Self) {
        assert!(len <= self.len, "{len} bytes of a piece of {}", self.len);
        (Self { len, ..*self }, Self { len: self.len - len, at: self.at + len as usize, ..*self })
    }
}

/// True if two ranges have a byte in common.
fn meets(start: u64, other: u64, len: u64, other_len: u64) -> bool {
    start < other.saturating_add(other_len) && other < start.saturating_add(len)
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
