//! A guest's memory: maps the guest's addresses to the shared mappings.
//!
//! Always true: a table never changes. A new table replaces it, and users of the old one keep it
//! mapped. Must not know queues and requests.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use reactor::Span;
use smallvec::SmallVec;

use super::limits::REGIONS_MAX;
use super::mapping::{MappingRef, SharedMapping, Window};

/// A region as a front end describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionLayout {
    /// Address in the guest.
    pub(super) guest: u64,
    /// Address in the front end. Rings are located by these addresses.
    pub(super) user: u64,
    /// Length in bytes.
    pub(super) len: u64,
    /// Offset of the region in its file.
    pub(super) offset: u64,
}

/// A range of a guest's memory that is contiguous in our mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GuestSegment {
    region: u32,
    pub(super) len: u32,
    at: usize,
}

/// Consecutive ranges of a guest's memory. Most requests have one.
pub(super) type GuestSegments = SmallVec<[GuestSegment; 4]>;

/// A guest's memory regions and their mappings.
#[derive(Clone)]
pub(super) struct GuestMemory {
    regions: Arc<Vec<RegionLayout>>,
    mapping_ref: MappingRef,
}

/// An error in the memory that a front end shares.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemoryError {
    #[error("the memory at {guest:#x} cannot be mapped: {source}")]
    Map { guest: u64, source: io::Error },
    #[error("the memory at {0:#x} overlaps other memory or wraps around")]
    Overlap(u64),
    #[error("more than {REGIONS_MAX} memory regions")]
    TooMany,
    #[error("there is no memory region of {len:#x} bytes at {guest:#x}")]
    Unknown { guest: u64, len: u64 },
}

impl GuestMemory {
    /// Creates a table without memory.
    pub(super) fn empty() -> Self {
        Self { regions: Arc::default(), mapping_ref: MappingRef::new(Vec::new()) }
    }

    /// Returns the table with one more region.
    ///
    /// # Errors
    /// Fails if the region overlaps others, exceeds the limit, or cannot be mapped.
    pub(super) fn with(&self, region: RegionLayout, file: BorrowedFd<'_>) -> Result<Self, MemoryError> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(MemoryError::TooMany);
        }
        let overlaps =
            |other: &RegionLayout| ranges_overlap(region.guest, other.guest, region.len, other.len);
        let wraps = [region.guest, region.user].iter().any(|start| start.checked_add(region.len).is_none());
        if wraps || self.regions.iter().any(overlaps) {
            return Err(MemoryError::Overlap(region.guest));
        }
        let mapping = SharedMapping::new(file, region.offset, region.len)
            .map_err(|source| MemoryError::Map { guest: region.guest, source })?;
        let mut regions = self.regions.to_vec();
        let mut mappings = self.mappings();
        regions.push(region);
        mappings.push(Arc::new(mapping));
        Ok(Self { regions: Arc::new(regions), mapping_ref: MappingRef::new(mappings) })
    }

    /// Returns the table without a region.
    ///
    /// # Errors
    /// Fails if there is no such region.
    pub(super) fn without(&self, guest: u64, user: u64, len: u64) -> Result<Self, MemoryError> {
        let matches = |region: &RegionLayout| (region.guest, region.user, region.len) == (guest, user, len);
        let Some(index) = self.regions.iter().position(matches) else {
            return Err(MemoryError::Unknown { guest, len });
        };
        let mut regions = self.regions.to_vec();
        let mut mappings = self.mappings();
        regions.remove(index);
        mappings.remove(index);
        Ok(Self { regions: Arc::new(regions), mapping_ref: MappingRef::new(mappings) })
    }

    /// Returns true if pages were missing when they were accessed, because the front end has
    /// removed them.
    pub(super) fn is_lost(&self) -> bool {
        self.mapping_ref.is_lost()
    }

    fn mappings(&self) -> Vec<Arc<SharedMapping>> {
        (0..self.regions.len()).filter_map(|index| self.mapping_ref.get(index).cloned()).collect()
    }

    /// Returns the table with its own reference count, for a user on another core.
    pub(super) fn independent(&self) -> Self {
        Self { regions: self.regions.clone(), mapping_ref: self.mapping_ref.independent() }
    }

    /// Appends the segments of the guest's bytes from `guest` on. Returns false if they are not all
    /// memory.
    pub(super) fn locate(&self, guest: u64, len: u32, into: &mut GuestSegments) -> bool {
        let (mut guest, mut left) = (guest, len);
        while left > 0 {
            let Some(segment) = self.locate_in_region(guest, left) else { return false };
            guest = guest.wrapping_add(segment.len.into());
            left -= segment.len;
            match into.last_mut() {
                Some(last) if last.is_followed_by(&segment) => last.len += segment.len,
                _ => into.push(segment),
            }
        }
        true
    }

    /// Returns the part of the guest's bytes from `guest` on that is in one region.
    fn locate_in_region(&self, guest: u64, len: u32) -> Option<GuestSegment> {
        for (index, region) in self.regions.iter().enumerate() {
            let skip = guest.wrapping_sub(region.guest);
            if skip < region.len {
                let len = u32::try_from(region.len - skip).map_or(len, |most| most.min(len));
                let at = usize::try_from(skip).ok()?;
                return Some(GuestSegment { region: u32::try_from(index).ok()?, len, at });
            }
        }
        None
    }

    /// Returns a window of `len` bytes at the front end's address `user`, if it is aligned to
    /// `align`.
    pub(super) fn window_at_user(&self, user: u64, len: usize, align: usize) -> Option<Window> {
        let inside = |region: &RegionLayout| user.wrapping_sub(region.user) < region.len;
        let index = self.regions.iter().position(inside)?;
        let skip = user - self.regions.get(index)?.user;
        self.mapping_ref.window(index, usize::try_from(skip).ok()?, len, align)
    }

    /// Returns a span for I/O on a segment of this table.
    pub(super) fn span(&self, segment: &GuestSegment) -> Span {
        match self.mapping_ref.span(segment.region as usize, segment.at, segment.len as usize) {
            Some(span) => span,
            None => panic!("a segment of another table"),
        }
    }

    /// Copies the guest's bytes at `guest`. Returns false if they are not in one region.
    pub(super) fn read_at(&self, guest: u64, into: &mut [u8]) -> bool {
        let Ok(len) = u32::try_from(into.len()) else { return false };
        self.locate_in_region(guest, len).is_some_and(|segment| self.read(&segment, into))
    }

    /// Copies a segment's first bytes. Returns false if it is shorter.
    pub(super) fn read(&self, segment: &GuestSegment, into: &mut [u8]) -> bool {
        let mapping = self.mapping_ref.get(segment.region as usize);
        into.len() <= segment.len as usize
            && mapping.is_some_and(|mapping| mapping.copy_out(segment.at, into))
    }

    /// Writes a segment's first byte. Returns false if it is empty.
    pub(super) fn write_byte(&self, segment: &GuestSegment, value: u8) -> bool {
        let mapping = self.mapping_ref.get(segment.region as usize);
        segment.len > 0 && mapping.is_some_and(|mapping| mapping.set_byte(segment.at, value))
    }

    /// Returns the guest address of a segment.
    pub(super) fn guest_address(&self, segment: &GuestSegment) -> u64 {
        self.regions.get(segment.region as usize).map_or(0, |region| region.guest + segment.at as u64)
    }
}

impl GuestSegment {
    /// Returns true if `next` directly follows this segment.
    fn is_followed_by(&self, next: &Self) -> bool {
        self.region == next.region
            && self.at + self.len as usize == next.at
            && self.len.checked_add(next.len).is_some()
    }

    /// Splits the segment after `len` bytes.
    pub(super) fn split(&self, len: u32) -> (Self, Self) {
        assert!(len <= self.len, "{len} bytes of a segment of {}", self.len);
        (Self { len, ..*self }, Self { len: self.len - len, at: self.at + len as usize, ..*self })
    }
}

/// Returns true if two ranges overlap.
fn ranges_overlap(start: u64, other: u64, len: u64, other_len: u64) -> bool {
    start < other.saturating_add(other_len) && other < start.saturating_add(len)
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
