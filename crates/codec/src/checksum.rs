//! CRC-32C, by itself and fused with the copy that the write path makes.
//!
//! Owns which checksum it is (CRC-32C: iSCSI, RFC 3720 appendix B.4; on the drives, so it stays). Must not know
//! what a block is used for.
#![allow(unsafe_code)]

use crate::Implementation;

/// The Castagnoli polynomial 0x1EDC6F41 with its bits reversed: bit 31 is the factor of x^0.
pub(crate) const POLYNOMIAL: u32 = 0x82F6_3B78;

/// A polynomial times x mod P. Also one step of the checksum's register over a zero bit.
pub(crate) const fn times_x(polynomial: u32) -> u32 {
    polynomial >> 1 ^ if polynomial & 1 == 1 { POLYNOMIAL } else { 0 }
}

/// CRC-32C (iSCSI) of `data`. Of nothing it is 0; of `"123456789"` it is 0xE3069283.
#[must_use]
pub fn crc32c(data: &[u8]) -> u32 {
    crc32c_append(0, data)
}

/// CRC-32C of the bytes that gave `crc` followed by `data`: `crc32c_append(crc32c(a), b) == crc32c(ab)`.
#[must_use]
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    Implementation::best().crc32c_append(crc, data)
}

/// CRC-32C of each `block` bytes of `data`, in order. Faster than one by one where the data is not in the caches
/// (it was just read from a drive, say), since the next block is fetched while one is summed.
///
/// # Panics
/// If `data` is not `crcs.len()` blocks long, or `block` is 0.
pub fn crc32c_blocks(data: &[u8], block: usize, crcs: &mut [u32]) {
    assert!(block > 0, "a block holds something");
    assert_eq!(Some(data.len()), block.checked_mul(crcs.len()), "data is as many blocks as there are sums");
    Implementation::best().crc32c_blocks(data, block, crcs);
}

/// Copies `source` to `destination` and gives the CRC-32C of the copy, in one pass.
///
/// # Panics
/// If they are not of one length.
pub fn copy_crc32c(source: &[u8], destination: &mut [u8]) -> u32 {
    assert_eq!(source.len(), destination.len(), "a copy is as long as what is copied");
    // SAFETY: a slice is readable for its length, and no shared slice overlaps a mutable one.
    unsafe { copy_crc32c_from(source.as_ptr(), destination) }
}

/// Copies `destination.len()` bytes from `source`, which others (a guest, say) may be changing meanwhile, and
/// gives the CRC-32C of what arrived in `destination`: the checksum and the copy always agree, whatever the source
/// does.
///
/// # Safety
/// `source` must be valid for reads of `destination.len()` bytes and not overlap `destination`. It may be written
/// by another process or a guest during the call, and by another thread of this one only with atomic or volatile
/// writes.
pub unsafe fn copy_crc32c_from(source: *const u8, destination: &mut [u8]) -> u32 {
    // SAFETY: the caller's contract is the callee's.
    unsafe { Implementation::best().copy_crc32c(source, destination.as_mut_ptr(), destination.len(), source) }
}

/// Copies blocks of `block` bytes, as many as there are sums, and gives the CRC-32C of each copy. Many are written past the
/// caches where the processor can do that, as a device writes them that moves data by itself.
///
/// # Safety
/// `source` must be valid for reads and `destination` for writes of all blocks, and they must not overlap. Others may be writing
/// to the source as [`copy_crc32c_from`] says; nobody reads the destination meanwhile, unless he takes what he finds.
///
/// # Panics
/// If `block` is 0.
pub unsafe fn copy_crc32c_blocks(source: *const u8, destination: *mut u8, block: usize, crcs: &mut [u32]) {
    assert!(block > 0, "a block holds something");
    // SAFETY: the caller's contract is the callee's.
    unsafe { Implementation::best().copy_crc32c_blocks(source, destination, block, crcs) }
}

#[cfg(test)]
mod tests;
