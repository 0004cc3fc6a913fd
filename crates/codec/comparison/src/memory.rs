//! The memory of the comparisons: stripes of columns, page-aligned like the engine's.
//!
//! Owns one allocation, filled with reproducible noise. All candidates of a comparison use the same
//! bytes at the same addresses, so that none benefits from its cache or TLB placement. Must not
//! know the computations.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

/// Bytes that exceed every cache of this machine; its last-level cache has 32 MiB.
pub const MEMORY: usize = 192 << 20;

/// Stripes of `columns` columns of `length` bytes, one after the other.
pub struct Stripes {
    base: *mut u8,
    /// Number of stripes.
    pub count: usize,
    columns: usize,
    /// Bytes of a column.
    pub length: usize,
    addresses: Vec<*mut u8>,
}

impl Stripes {
    /// Allocates and fills the stripes. Never frees them, as the program ends soon afterwards.
    pub fn new(count: usize, columns: usize, length: usize) -> Self {
        assert!(length.is_multiple_of(4096) && count > 0);
        let bytes = count * columns * length;
        let layout = Layout::from_size_align(bytes, 4096).expect("a size that exists");
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        if base.is_null() {
            handle_alloc_error(layout);
        }
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for word in 0..bytes / 8 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // SAFETY: within the allocation, aligned to 8.
            unsafe { base.cast::<u64>().add(word).write(state) };
        }
        // SAFETY: within the allocation.
        let addresses = (0..count * columns).map(|i| unsafe { base.add(i * length) }).collect();
        Self { base, count, columns, length, addresses }
    }

    /// Returns the addresses of a stripe's columns; `iteration` cycles over the stripes.
    pub fn columns(&self, iteration: usize) -> &[*mut u8] {
        let first = iteration % self.count * self.columns;
        &self.addresses[first..first + self.columns]
    }

    /// Returns a column for reading.
    ///
    /// # Safety
    /// No other code may write it while the slice lives.
    pub unsafe fn slice<'a>(&self, address: *mut u8) -> &'a [u8] {
        debug_assert!(address >= self.base);
        // SAFETY: the addresses are those of columns of `length` bytes that are never freed.
        unsafe { std::slice::from_raw_parts(address, self.length) }
    }

    /// Returns a column for writing.
    ///
    /// # Safety
    /// No other code may read or write it while the slice lives.
    pub unsafe fn slice_mut<'a>(&self, address: *mut u8) -> &'a mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(address, self.length) }
    }
}
