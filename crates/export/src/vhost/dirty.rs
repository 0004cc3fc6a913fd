//! The dirty log of live migration: one bit for each page of the guest.
//!
//! Always true: a page is marked after it was changed, and before the guest or the front end can
//! observe the change. Must not know the writers.

use std::io;
use std::os::fd::BorrowedFd;

use super::mapping::SharedMapping;

/// Bytes that one bit stands for.
const PAGE: u64 = 4096;

/// A dirty log in memory that the front end shares.
pub(super) struct DirtyLog {
    bits: SharedMapping,
}

impl DirtyLog {
    /// Maps the log: `len` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// Fails if the file cannot be mapped.
    pub(super) fn new(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Self> {
        Ok(Self { bits: SharedMapping::new(file, offset, len)? })
    }

    /// Returns true if the front end has removed the log's memory.
    pub(super) fn is_lost(&self) -> bool {
        self.bits.is_lost()
    }

    /// Marks the pages of `len` bytes at the guest address `guest`. Pages beyond the log are
    /// ignored: front ends make the log as long as the guest's memory.
    pub(super) fn mark(&self, guest: u64, len: u64) {
        if len == 0 {
            return;
        }
        let last = guest.saturating_add(len - 1) / PAGE;
        for page in guest / PAGE..=last {
            let Ok(byte) = usize::try_from(page / 8) else { return };
            if !self.bits.set_bits(byte, 1 << (page % 8)) {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "dirty_tests.rs"]
mod tests;
