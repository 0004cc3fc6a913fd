//! Limits on a decoder's memory: an allocator that counts for each thread, in every test that uses
//! this crate.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
    /// Maximum of `ALLOCATED` since the last call of [`within`].
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn count(bytes: isize) {
    // The counters of an exiting thread are no longer accessible.
    let _ = ALLOCATED.try_with(|allocated| {
        allocated.set(allocated.get().wrapping_add(bytes));
        PEAK.set(PEAK.get().max(allocated.get()));
    });
}

fn signed(bytes: usize) -> isize {
    // A layout is never larger.
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: every call is passed unchanged to the system's allocator; counting neither allocates nor
// panics.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's contract is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(signed(size) - signed(layout.size()));
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Calls `function` and asserts that this thread never has more than `limit` bytes allocated in
/// addition to those before the call.
///
/// # Panics
/// If it does. If the system refuses an allocation, the process is aborted.
#[track_caller]
pub fn within<T>(limit: usize, function: impl FnOnce() -> T) -> T {
    let before = ALLOCATED.get();
    PEAK.set(before);
    let result = function();
    let peak = PEAK.get().wrapping_sub(before);
    assert!(peak <= signed(limit), "{peak} bytes of memory were allocated; the limit is {limit}");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_and_deallocations_are_counted() {
        within(4096, || {
            for _ in 0..100 {
                drop(std::hint::black_box(vec![1u8; 4096]));
            }
        });
        let buffer = within(5000, || {
            let mut buffer = vec![0u8; 1000];
            buffer.reserve_exact(4000);
            buffer
        });
        assert_eq!(buffer.capacity(), 5000);
    }

    #[test]
    #[should_panic(expected = "8192 bytes of memory were allocated; the limit is 8191")]
    fn exceeding_the_limit_panics() {
        within(8191, || drop(std::hint::black_box(vec![0u8; 8192])));
    }
}
