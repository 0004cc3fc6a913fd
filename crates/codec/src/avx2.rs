//! AVX2: any x86-64 server of the last ten years.
//!
//! Owns the list of features its kernel may use: `Implementation` hands it out only where all of them are there.
//! Must give bit for bit what `scalar` gives. Checksums are crc-fast's here.

mod combine;
mod nibbles;

pub(crate) use combine::combine;

/// Whether this machine has every feature that the kernel of this module is compiled for.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
}
