//! Memory that a front end shares, mapped and accessed only through raw copies and atomics.
//!
//! Always true: no access leaves a mapping. A mapping lives as long as any window or span of it. No
//! Rust reference to shared bytes exists, because the other side may change them at any time.
//! Numbers are little-endian, as in virtio.
//!
//! The other side can shrink the file behind a mapping at any time. Zeros then replace the missing
//! pages and the mapping is lost (see `sigbus.rs`). Users of a mapping must check this before they
//! acknowledge.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use reactor::Span;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::sigbus::{self, SigbusGuard};

/// A range of a file, mapped for reading and writing.
pub(super) struct SharedMapping {
    /// The mapped range: whole pages around the bytes.
    base: NonNull<c_void>,
    mapped: usize,
    /// The bytes.
    start: NonNull<u8>,
    len: usize,
    /// ConnectionState before the mapping does.
    guard: ManuallyDrop<SigbusGuard>,
}

// SAFETY: a mapping is an address range that belongs to this value; its bytes are only reached
// through raw copies and atomics.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `len` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// Fails if the file is shorter, is on a network or FUSE file system, or cannot be mapped.
    pub(super) fn new(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Self> {
        let invalid = |message: &str| io::Error::new(io::ErrorKind::InvalidInput, message.to_owned());
        if is_served_elsewhere(rustix::fs::fstatfs(file)?.f_type) {
            return Err(invalid("the file is on a network or FUSE file system, which may not respond"));
        }
        let stat = rustix::fs::fstat(file)?;
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or_else(|| invalid("the range is empty"))?;
        if u64::try_from(stat.st_size).unwrap_or(0) < end {
            return Err(invalid("the file is shorter than the stated range"));
        }
        // A file of huge pages is mapped in whole huge pages.
        let page = u64::try_from(stat.st_blksize).unwrap_or(0).max(4096).next_power_of_two();
        let from = offset - offset % page;
        let until = end.checked_next_multiple_of(page).ok_or_else(|| invalid("the range is too long"))?;
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| invalid("the range is too long"));
        let (mapped, skip, len) = (size(until - from)?, size(offset - from)?, size(len)?);
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            // Huge pages are reserved here. Missing ones must make this call fail, and not a later
            // access.
            rustix::mm::mmap(std::ptr::null_mut(), mapped, prot, MapFlags::SHARED, file, from)?
        };
        let Some(base) = NonNull::new(base) else {
            return Err(invalid("the kernel mapped the range at address 0"));
        };
        // Excludes the guest's memory from core dumps. Kernels without core dumps refuse this.
        // SAFETY: advice about the pages that were just mapped.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr(), mapped, Advice::LinuxDontDump) };
        // SAFETY: `skip` lies within the mapping, since `skip + len` does.
        let start = unsafe { base.cast::<u8>().add(skip) };
        // SAFETY: the pages that were just mapped; their bytes are numbers and data that no code
        // relies on.
        match unsafe { SigbusGuard::new(base.as_ptr() as usize, mapped, size(page)?) } {
            Ok(guard) => Ok(Self { base, mapped, start, len, guard: ManuallyDrop::new(guard) }),
            Err(error) => {
                // SAFETY: mapped above with this length, and not used anywhere.
                let _ = unsafe { rustix::mm::munmap(base.as_ptr(), mapped) };
                Err(error)
            }
        }
    }

    /// Returns the address of `len` bytes from `at` on, if they are within the mapping.
    fn place(&self, at: usize, len: usize) -> Option<NonNull<u8>> {
        if at > self.len || len > self.len - at {
            return None;
        }
        // SAFETY: `at` lies within the mapping or at its end.
        Some(unsafe { self.start.add(at) })
    }

    /// Returns true if pages were missing when they were accessed.
    pub(super) fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Copies bytes from `at` on to `into`. Returns false if they are not within the mapping.
    pub(super) fn copy_out(&self, at: usize, into: &mut [u8]) -> bool {
        let Some(from) = self.place(at, into.len()) else { return false };
        // SAFETY: valid for the length; no reference to shared bytes exists, so they do not overlap
        // with `into`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Writes one byte. Returns false if it is not within the mapping.
    pub(super) fn set_byte(&self, at: usize, value: u8) -> bool {
        let Some(place) = self.place(at, 1) else { return false };
        // SAFETY: a byte within the mapping.
        unsafe { place.write_volatile(value) };
        true
    }

    /// Sets bits of a byte atomically. Returns false if it is not within the mapping.
    pub(super) fn set_bits(&self, at: usize, bits: u8) -> bool {
        let Some(place) = self.place(at, 1) else { return false };
        // SAFETY: a byte within the mapping, which others change atomically too.
        unsafe { AtomicU8::from_ptr(place.as_ptr()) }.fetch_or(bits, Ordering::Relaxed);
        true
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: dropped here and nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
        // SAFETY: mapped in `new` with this length, unmapped once; windows and spans hold the
        // mapping.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.mapped) };
        assert!(unmapped.is_ok(), "munmap failed");
    }
}

/// Returns true for file systems with pages from another process or host. An access to a page that
/// never arrives would block a reactor. The numbers are those of statfs(2).
fn is_served_elsewhere(kind: rustix::fs::FsWord) -> bool {
    const FUSE: u32 = 0x6573_5546;
    const NFS: u32 = 0x6969;
    const CIFS: u32 = 0xFF53_4D42;
    const SMB2: u32 = 0xFE53_4D42;
    const NINE_P: u32 = 0x0102_1997;
    const CEPH: u32 = 0x00C3_6400;
    const AFS: u32 = 0x5346_414F;
    // Compared in the width of the kernel's numbers, regardless of the type's sign.
    [FUSE, NFS, CIFS, SMB2, NINE_P, CEPH, AFS].contains(&(kind as u32))
}

/// A reference to mappings that live together. A clone shares the reference count;
/// [`MappingRef::independent`] has its own, so that cores do not contend for it.
#[derive(Clone)]
pub(super) struct MappingRef {
    mappings: Arc<Vec<Arc<SharedMapping>>>,
    keep: Arc<MappingTable>,
}

/// The reference-counted owner of mappings.
struct MappingTable {
    _mappings: Arc<Vec<Arc<SharedMapping>>>,
}

impl MappingRef {
    pub(super) fn new(mappings: Vec<Arc<SharedMapping>>) -> Self {
        Self::of(Arc::new(mappings))
    }

    fn of(mappings: Arc<Vec<Arc<SharedMapping>>>) -> Self {
        Self { keep: Arc::new(MappingTable { _mappings: mappings.clone() }), mappings }
    }

    /// Returns a reference to the same mappings with its own reference count.
    pub(super) fn independent(&self) -> Self {
        Self::of(self.mappings.clone())
    }

    /// Returns true if pages of any mapping were missing when they were accessed.
    pub(super) fn is_lost(&self) -> bool {
        sigbus::any_lost() && self.mappings.iter().any(|mapping| mapping.is_lost())
    }

    /// Returns one of the mappings.
    pub(super) fn get(&self, index: usize) -> Option<&Arc<SharedMapping>> {
        self.mappings.get(index)
    }

    /// Returns a span for I/O on `len` bytes of a mapping from `at` on, if they are within it.
    pub(super) fn span(&self, index: usize, at: usize, len: usize) -> Option<Span> {
        let start = self.get(index)?.place(at, len)?;
        let keep: Arc<dyn Any + Send + Sync> = self.keep.clone();
        // SAFETY: within the mapping, which lives as long as `keep`.
        Some(unsafe { Span::from_raw(start, len, keep) })
    }

    /// Returns a window of `len` bytes of a mapping from `at` on, if they are within it and aligned
    /// to `align`.
    pub(super) fn window(&self, index: usize, at: usize, len: usize, align: usize) -> Option<Window> {
        let start = self.get(index)?.place(at, len)?;
        let aligned = (start.as_ptr() as usize).is_multiple_of(align);
        aligned.then(|| Window { start, len, mapping_ref: self.clone() })
    }
}

/// A structure in shared memory: numbers at fixed offsets, read and written by both sides.
pub(super) struct Window {
    start: NonNull<u8>,
    len: usize,
    mapping_ref: MappingRef,
}

// SAFETY: an address with a reference count on its owner; the bytes are only reached through raw
// copies and atomics.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if pages of the window's mappings were missing when they were accessed.
    pub(super) fn is_lost(&self) -> bool {
        self.mapping_ref.is_lost()
    }

    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of a window of {}", self.len);
        // SAFETY: within the window.
        unsafe { self.start.as_ptr().add(at) }
    }

    fn half(&self, at: usize) -> &AtomicU16 {
        let place = self.place(at, 2).cast::<u16>();
        assert!(place.is_aligned(), "unaligned 16-bit number");
        // SAFETY: within the window, aligned; both sides read and write it as a whole.
        unsafe { AtomicU16::from_ptr(place) }
    }

    /// Loads the 16-bit number at `at`. Writes of the other side before its store are visible
    /// afterwards.
    pub(super) fn load_16(&self, at: usize) -> u16 {
        u16::from_le(self.half(at).load(Ordering::Acquire))
    }

    /// Stores a 16-bit number. Earlier writes are visible to a reader that sees it.
    pub(super) fn store_16(&self, at: usize, value: u16) {
        self.half(at).store(value.to_le(), Ordering::Release);
    }

    /// Loads the byte at `at`.
    pub(super) fn load_8(&self, at: usize) -> u8 {
        // SAFETY: within the window; both sides read and write it as a whole.
        unsafe { AtomicU8::from_ptr(self.place(at, 1)) }.load(Ordering::Acquire)
    }

    /// Stores a byte. Earlier writes are visible to a reader that sees it.
    pub(super) fn store_8(&self, at: usize, value: u8) {
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr(self.place(at, 1)) }.store(value, Ordering::Release);
    }

    /// Copies bytes in their current state. They may mix old and new bytes of a concurrent write by
    /// the other side.
    pub(super) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: within the window; no reference to shared bytes exists.
        unsafe { std::ptr::copy_nonoverlapping(self.place(at, N), bytes.as_mut_ptr(), N) };
        bytes
    }

    /// Writes bytes. The other side reads them only after a later [`Window::store_16`].
    pub(super) fn write<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.place(at, N), N) };
    }
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
