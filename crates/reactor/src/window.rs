//! Bytes of drives that are memory of this process, as they lie there.
//!
//! Always true: they lie within the drive's memory, which stays while the drive is borrowed. Others may be reading and writing them,
//! as any drive's: they are copied, never referenced.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use crate::stream;

/// Bytes to be read.
#[derive(Clone, Copy, Debug)]
pub struct ReadWindow<'a> {
    start: *const u8,
    len: usize,
    drive: PhantomData<&'a ()>,
}

impl<'a> ReadWindow<'a> {
    /// A window on the `len` bytes at `start`, which must stay readable for `'a`.
    pub(crate) fn new(start: *const u8, len: usize) -> Self {
        Self { start, len, drive: PhantomData }
    }

    /// Where the first byte lies.
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// Number of bytes.
    #[allow(clippy::len_without_is_empty, reason = "nobody asks for nothing")]
    pub fn len(&self) -> usize {
        self.len
    }
}

/// Bytes to be written. Past the caches, as a device does; others see it when this has been dropped.
pub struct WriteWindow<'a> {
    start: *mut u8,
    len: usize,
    drive: PhantomData<&'a ()>,
}

impl WriteWindow<'_> {
    /// The `len` bytes at `start`.
    ///
    /// # Safety
    /// They stay writable for the lifetime, and nobody has a reference to them.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len, drive: PhantomData }
    }

    /// Writes `bytes` from byte `at` on.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn store(&mut self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "a write beyond a window");
        // SAFETY: in bounds; the bytes are somebody's reference, so they are not the drive's.
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
    fn what_is_stored_in_a_window_is_written_there_and_nowhere_else() {
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
    fn nothing_is_stored_beyond_a_window() {
        let drive = Memory::new(3 * 4096).unwrap().open();
        drive.write_window(4096, 4096).unwrap().store(1, &[0; 4096]);
    }
}
