//! Prefetching of memory into the caches.
//!
//! Contains the one unsafe instruction needed: it is declared unsafe but never changes memory and
//! never faults, at any address. Without such an instruction on this architecture, prefetching does
//! nothing.
#![allow(unsafe_code)]

/// Cache line size in bytes.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Prefetches the cache lines of `length` bytes from `start`. Pays if the bytes are used a few
/// hundred nanoseconds later.
pub fn prefetch(start: *const u8, length: usize) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..length).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: no memory is accessed as far as the program can tell; any address is allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(at).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, length);
}
