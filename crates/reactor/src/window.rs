//! In-place access to the bytes of memory drives.
//!
//! Invariant: a window lies within the drive's memory, which outlives the borrow of the drive.
//! Other threads may read and write these bytes, as on any drive: they are copied, never
//! referenced.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::stream;

/// Bytes of a drive for reading.
#[derive(Clone, Copy, Debug)]
pub struct ReadWindow<'a> {
    start: *const u8,
    len: usize,
    drive: PhantomData<&'a ()>,
}

impl<'a> ReadWindow<'a> {
    /// Returns a window on the `len` bytes at `start`, which must stay readable for `'a`.
    pub(crate) fn new(start: *const u8, len: usize) -> Self {
        Self { start, len, drive: PhantomData }
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// Number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "a window is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Bytes of a drive for writing with non-temporal stores. Other threads see them once this is
/// dropped.
pub struct WriteWindow<'a> {
    start: *mut u8,
    len: usize,
    drive: PhantomData<&'a ()>,
}

impl WriteWindow<'_> {
    /// Returns a window on the `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes stay writable for the lifetime, and no reference to them exists.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len, drive: PhantomData }
    }

    /// Writes `bytes` at offset `at`.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn store(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "write beyond a window");
        // SAFETY: in bounds; a Rust reference covers `bytes`, so they are not the drive's memory.
        unsafe { stream::copy_unfenced(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }
}

impl Drop for WriteWindow<'_> {
    fn drop(&mut self) {
        stream::fence();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Buffer, Drive, Memory};

    #[test]
    fn a_store_changes_only_its_range() {
        let drive = Memory::new(5 * 4096).unwrap().open();
        let mut window = drive.write_window(4096, 3 * 4096).unwrap();
        window.store(4096, &[7; 2 * 4096]);
        window.store(100, &[9; 50]);
        window.store(3 * 4096, &[]);
        drop(window);
        let all = Buffer::new(5 * 4096);
        assert_eq!(drive.read(0, &[all.span()]).try_take(), Some(Ok(5 * 4096)));
        let right = |at: usize| match at {
            4196..4246 => 9,
            8192..16384 => 7,
            _ => 0,
        };
        assert!(all.as_slice().iter().enumerate().all(|(at, byte)| *byte == right(at)));
        assert!(drive.write_window(2 * 4096, 3 * 4096 + 1).is_none(), "past the end of the drive");
    }

    #[test]
    #[should_panic(expected = "beyond a window")]
    fn a_store_beyond_the_window_panics() {
        let drive = Memory::new(3 * 4096).unwrap().open();
        drive.write_window(4096, 4096).unwrap().store(1, &[0; 4096]);
    }
}
