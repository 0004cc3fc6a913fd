//! How much memory a decoder takes: an allocator that counts for each thread, in every test that
//! uses this crate.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static HELD: Cell<isize> = const { Cell::new(0) };
    /// The most of them since the last [`within`] began.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

fn count(bytes: isize) {
    // A thread that ends has no counters any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get().wrapping_add(bytes));
        PEAK.set(PEAK.get().max(held.get()));
    });
}

fn signed(bytes: usize) -> isize {
    // A layout is never larger.
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

// SAFETY: every call goes to the system's allocator unchanged; counting neither allocates nor
// panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller's promises are those that the system's allocator asks for.
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

/// Does `work` and asserts that this thread never held more than `most` bytes of memory beyond what
/// it held before.
///
/// # Panics
/// If it did. A request that the system refuses ends the process instead.
#[track_caller]
pub fn within<T>(most: usize, work: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    PEAK.set(before);
    let result = work();
    let taken = PEAK.get().wrapping_sub(before);
    assert!(taken <= signed(most), "{taken} bytes of memory were taken where {most} are allowed");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_as_it_is_taken_and_given_back() {
        within(4096, || {
            for _ in 0..100 {
                drop(std::hint::black_box(vec![1u8; 4096]));
            }
        });
        let kept = within(5000, || {
            let mut kept = vec![0u8; 1000];
            kept.reserve_exact(4000);
            kept
        });
        assert_eq!(kept.capacity(), 5000);
    }

    #[test]
    #[should_panic(expected = "8192 bytes of memory were taken where 8191 are allowed")]
    fn more_than_is_allowed_is_noticed() {
        within(8191, || drop(std::hint::black_box(vec![0u8; 8192])));
    }
}
