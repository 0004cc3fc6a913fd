//! CRC-32C, alone and fused with the copy of the write path.
//!
//! Owns the choice of the checksum (CRC-32C: iSCSI, RFC 3720 appendix B.4), which is part of the
//! on-disk format. Must not know the purpose of a block.
#![allow(unsafe_code)]

use crate::Implementation;

/// Returns the CRC-32C (iSCSI) of `data`: 0 for no bytes, 0xE3069283 for `"123456789"`.
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    crc32c_append(0, data)
}

/// Continues the CRC-32C `crc` with `data`: `crc32c_append(crc32c(a), b) == crc32c(ab)`.
#[must_use]
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    Implementation::best().crc32c_append(crc, data)
}

/// Computes the CRC-32C of each `block` bytes of `data`, in order. Faster than one call per block
/// if the data is not in the caches, for example after a read from a drive, because the next block
/// is prefetched.
///
/// # Panics
/// If `data` is not `crcs.len()` blocks long, or `block` is 0.
pub fn crc32c_blocks(data: &[u8], block: usize, crcs: &mut [u32]) {
    assert!(block > 0, "the block size must not be 0");
    assert_eq!(
        Some(data.len()),
        block.checked_mul(crcs.len()),
        "data must have as many blocks as there are checksums"
    );
    Implementation::best().crc32c_blocks(data, block, crcs);
}

/// Copies `source` to `destination` and returns the CRC-32C of the copy, in one pass.
///
/// # Panics
/// If the lengths differ.
pub fn copy_crc32c(source: &[u8], destination: &mut [u8]) -> u32 {
    assert_eq!(source.len(), destination.len(), "source and destination must have the same length");
    // SAFETY: a slice is readable for its length, and no shared slice overlaps a mutable one.
    unsafe { copy_crc32c_from(source.as_ptr(), destination) }
}

/// Copies `destination.len()` bytes from `source` and returns the CRC-32C of the bytes in
/// `destination`. The source, for example guest memory, may change during the call; the checksum
/// always matches the copy.
///
/// # Safety
/// `source` must be valid for reads of `destination.len()` bytes and not overlap `destination`.
/// During the call, it may be written by another process or a guest, and by another thread of this
/// process only with atomic or volatile writes.
pub unsafe fn copy_crc32c_from(source: *const u8, destination: &mut [u8]) -> u32 {
    // SAFETY: the caller's contract is the callee's.
    unsafe { Implementation::best().copy_crc32c(source, destination.as_mut_ptr(), destination.len(), source) }
}

#[cfg(test)]
mod tests;
