//! AVX2: x86-64 servers since about 2015.
//!
//! Owns the list of CPU features that its kernel may use: `Implementation` uses this module only if
//! all of them are available. Must produce the same bytes as `scalar`. Checksums are computed by
//! crc-fast.

mod combine;
mod nibbles;

pub(crate) use combine::combine;

/// Returns true if this machine has every feature that the kernel of this module is compiled for.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
}
