//! FNV-1a, 32 bits (Fowler, Noll, Vo): for identifiers that must be the same in every release,
//! which hashes of the standard library are not.

/// The hash of these bytes.
pub(crate) fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
