//! The log of changed memory that live migration asks for: one bit for each page of the guest.
//!
//! Always true: a page is marked after it was changed and before the guest or the front end can tell that it was. Must not
//! know who changes memory.

use std::io;
use std::os::fd::BorrowedFd;

use super::mapping::Mapping;

/// Bytes that one bit stands for.
const PAGE: u64 = 4096;

/// See the module.
pub(super) struct DirtyLog {
    bits: Mapping,
}

impl DirtyLog {
    /// The log in `len` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// When it cannot be mapped.
    pub(super) fn new(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Self> {
        Ok(Self { bits: Mapping::new(file, offset, len)? })
    }

    /// True if the front end has taken the log away.
    pub(super) fn is_lost(&self) -> bool {
        self.bits.is_lost()
    }

    /// Marks the pages of `len` bytes at the guest's address `guest`. What lies beyond the log cannot be marked: front ends
    /// make it as long as the guest's memory.
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
