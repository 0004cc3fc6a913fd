//! Memory shared with a back end, like a guest's memory: a mapped memfd.
//!
//! Contains the unsafe code of the benchmark: virtio requires memory that another process writes
//! to. Invariants: no access outside the mapping; no Rust reference to shared bytes.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A shared memory mapping; see the module documentation.
pub(super) struct SharedMemory {
    file: OwnedFd,
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: an address range owned by this value; its bytes are only reached through raw copies and
// atomics.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Allocates `len` bytes with all pages populated, in huge pages if the system supports them
    /// for memfds.
    pub(super) fn new(len: usize) -> io::Result<Arc<Self>> {
        let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0)? };
        let Some(start) = NonNull::new(start) else {
            return Err(io::Error::other("mmap returned a null address"));
        };
        let shared = Self { file, start, len };
        // SAFETY: the range is the mapping just made; huge pages are optional, and pages are
        // allocated, not changed.
        unsafe {
            let _ = rustix::mm::madvise(start.as_ptr(), len, Advice::LinuxHugepage);
            rustix::mm::madvise(start.as_ptr(), len, Advice::LinuxPopulateWrite)?;
        }
        Ok(Arc::new(shared))
    }

    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the address in this process.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Returns the file descriptor.
    pub(super) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of {}", self.len);
        // SAFETY: within the mapping.
        unsafe { self.start.cast::<u8>().as_ptr().add(at) }
    }

    fn half(&self, at: usize) -> &AtomicU16 {
        let place = self.place(at, 2).cast::<u16>();
        assert!(place.is_aligned(), "a number is misaligned");
        // SAFETY: within the mapping, aligned; both sides read and write it as a whole.
        unsafe { AtomicU16::from_ptr(place) }
    }

    /// Loads the number at `at` with acquire ordering.
    pub(super) fn load_16(&self, at: usize) -> u16 {
        u16::from_le(self.half(at).load(Ordering::Acquire))
    }

    /// Stores a number with release ordering.
    pub(super) fn store_16(&self, at: usize, value: u16) {
        self.half(at).store(value.to_le(), Ordering::Release);
    }

    /// Copies bytes out.
    pub(super) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: within the mapping; no reference to shared bytes exists.
        unsafe { std::ptr::copy_nonoverlapping(self.place(at, N), bytes.as_mut_ptr(), N) };
        bytes
    }

    /// Copies bytes in.
    pub(super) fn write<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.place(at, N), N) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; no address of it is in use any more.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr(), self.len) };
        assert!(unmapped.is_ok(), "munmap failed");
    }
}
