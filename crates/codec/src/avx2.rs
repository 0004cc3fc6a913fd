//! AVX2: x86-64 servers since about 2015.
//!
//! Owns the list of CPU features that its kernel may use: `Implementation` uses this module only if
//! all of them are available. Must produce the same bytes as `scalar`. Checksums are computed by
//! crc-fast.
#![allow(unsafe_code)]

mod combine;
mod nibbles;

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

pub(crate) use combine::combine;

/// Returns true if this machine has every feature that the kernel of this module is compiled for.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Prefetches the memory of `data` into the L1 cache.
pub(crate) fn prefetch(data: &[u8]) {
    for line in data.chunks(64) {
        // SAFETY: a prefetch is harmless for any address, and every x86-64 processor has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}
