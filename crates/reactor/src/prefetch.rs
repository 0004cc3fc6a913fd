//! Having memory brought near before it is used.
//!
//! Owns the one unsafe line that it takes: the instruction is declared unsafe, though it does nothing to memory and cannot
//! fail, whatever the address is. A hint: where the processor has no such instruction for us, nothing happens.
#![allow(unsafe_code)]

/// Bytes that come at once.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for the lines of `length` bytes from `start` on. It pays where the bytes are used a few hundred nanoseconds later.
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
