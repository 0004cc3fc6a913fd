//! Memory that a front end shares with us: mapped, and touched only through raw copies and atomics.
//!
//! Owns every unsafe line of the export. Always true: nothing is touched outside of a mapping; a mapping lives as long as
//! anybody holds a window or a span of it; no Rust reference to shared bytes is made, because the other side may change
//! them at any time. Numbers are little-endian, as virtio has them.
//!
//! The other side can shrink the file behind a mapping at any time. Zeros take the place of what is missing then, and the
//! mapping is lost (see `fault.rs`): whoever uses it looks for that before it answers.
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

use super::fault::{self, Guard};

/// Bytes of a file, mapped for reading and writing.
pub(super) struct Mapping {
    /// What was mapped: whole pages around the bytes.
    base: NonNull<c_void>,
    mapped: usize,
    /// The bytes.
    start: NonNull<u8>,
    len: usize,
    /// Ends before the mapping does.
    guard: ManuallyDrop<Guard>,
}

// SAFETY: a mapping is an address range that belongs to this value; its bytes are only reached through raw copies and
// atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// When the file is shorter, or cannot be mapped.
    pub(super) fn new(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Self> {
        let invalid = |message: &str| io::Error::new(io::ErrorKind::InvalidInput, message.to_owned());
        if is_served_elsewhere(rustix::fs::fstatfs(file)?.f_type) {
            return Err(invalid(
                "the file lies on a file system of another process or host, which may not answer",
            ));
        }
        let stat = rustix::fs::fstat(file)?;
        let end = offset.checked_add(len).filter(|_| len > 0).ok_or_else(|| invalid("an empty range"))?;
        if u64::try_from(stat.st_size).unwrap_or(0) < end {
            return Err(invalid("the file is shorter than what it is said to hold"));
        }
        // A file of huge pages is mapped in whole ones.
        let page = u64::try_from(stat.st_blksize).unwrap_or(0).max(4096).next_power_of_two();
        let from = offset - offset % page;
        let until = end.checked_next_multiple_of(page).ok_or_else(|| invalid("a range that long"))?;
        let size = |bytes: u64| usize::try_from(bytes).map_err(|_| invalid("a range that long"));
        let (mapped, skip, len) = (size(until - from)?, size(offset - from)?, size(len)?);
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            // Huge pages that are not there are to be refused here, not to end us when they are touched: so they are reserved.
            rustix::mm::mmap(std::ptr::null_mut(), mapped, prot, MapFlags::SHARED, file, from)?
        };
        let Some(base) = NonNull::new(base) else { return Err(invalid("a mapping at nothing")) };
        // A guest's memory does not belong into our core dumps. Refused by kernels that have none.
        // SAFETY: advice about the pages that were just mapped.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr(), mapped, Advice::LinuxDontDump) };
        // SAFETY: `skip` lies within the mapping, since `skip + len` does.
        let start = unsafe { base.cast::<u8>().add(skip) };
        // SAFETY: the pages that were just mapped; their bytes are numbers and data that nobody relies on.
        match unsafe { Guard::new(base.as_ptr() as usize, mapped, size(page)?) } {
            Ok(guard) => Ok(Self { base, mapped, start, len, guard: ManuallyDrop::new(guard) }),
            Err(error) => {
                // SAFETY: mapped above with this length, and used by nobody.
                let _ = unsafe { rustix::mm::munmap(base.as_ptr(), mapped) };
                Err(error)
            }
        }
    }

    /// Where `len` bytes from `at` on lie, if they do.
    fn place(&self, at: usize, len: usize) -> Option<NonNull<u8>> {
        if at > self.len || len > self.len - at {
            return None;
        }
        // SAFETY: `at` lies within the mapping or at its end.
        Some(unsafe { self.start.add(at) })
    }

    /// True if memory of it was missing when it was touched.
    pub(super) fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }

    /// Copies bytes out, from `at` on. False if they do not lie within the mapping.
    pub(super) fn copy_out(&self, at: usize, into: &mut [u8]) -> bool {
        let Some(from) = self.place(at, into.len()) else { return false };
        // SAFETY: valid for the length; nobody has a reference to shared bytes, so they do not overlap with `into`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        true
    }

    /// Writes one byte. False if it does not lie within the mapping.
    pub(super) fn set_byte(&self, at: usize, value: u8) -> bool {
        let Some(place) = self.place(at, 1) else { return false };
        // SAFETY: a byte within the mapping.
        unsafe { place.write_volatile(value) };
        true
    }

    /// Sets bits of a byte, at once with what others set. False if it does not lie within the mapping.
    pub(super) fn set_bits(&self, at: usize, bits: u8) -> bool {
        let Some(place) = self.place(at, 1) else { return false };
        // SAFETY: a byte within the mapping, which others change atomically too.
        unsafe { AtomicU8::from_ptr(place.as_ptr()) }.fetch_or(bits, Ordering::Relaxed);
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: dropped here and nowhere else.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
        // SAFETY: mapped in `new` with this length, unmapped once; windows and spans hold the mapping.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.mapped) };
        assert!(unmapped.is_ok(), "a mapping could not be given back");
    }
}

/// True for file systems whose pages come from another process or host: touching one that does not come would stop a
/// reactor. The numbers are those of statfs(2).
fn is_served_elsewhere(kind: rustix::fs::FsWord) -> bool {
    const FUSE: u32 = 0x6573_5546;
    const NFS: u32 = 0x6969;
    const CIFS: u32 = 0xFF53_4D42;
    const SMB2: u32 = 0xFE53_4D42;
    const NINE_P: u32 = 0x0102_1997;
    const CEPH: u32 = 0x00C3_6400;
    const AFS: u32 = 0x5346_414F;
    // As wide as the kernel's numbers are, whatever the type's sign makes of them.
    [FUSE, NFS, CIFS, SMB2, NINE_P, CEPH, AFS].contains(&(kind as u32))
}

/// Mappings that live together, and a count of who uses them. A clone counts on the same counter; [`Hold::apart`] counts
/// on one of its own, so that cores do not fight over it.
#[derive(Clone)]
pub(super) struct Hold {
    mappings: Arc<Vec<Arc<Mapping>>>,
    keep: Arc<Kept>,
}

/// What counts the users of mappings.
struct Kept {
    _mappings: Arc<Vec<Arc<Mapping>>>,
}

impl Hold {
    pub(super) fn new(mappings: Vec<Arc<Mapping>>) -> Self {
        Self::of(Arc::new(mappings))
    }

    fn of(mappings: Arc<Vec<Arc<Mapping>>>) -> Self {
        Self { keep: Arc::new(Kept { _mappings: mappings.clone() }), mappings }
    }

    /// A hold on the same mappings with a counter of its own.
    pub(super) fn apart(&self) -> Self {
        Self::of(self.mappings.clone())
    }

    /// True if memory of any of them was missing when it was touched.
    pub(super) fn is_lost(&self) -> bool {
        fault::has_happened() && self.mappings.iter().any(|mapping| mapping.is_lost())
    }

    /// One of the mappings.
    pub(super) fn get(&self, index: usize) -> Option<&Arc<Mapping>> {
        self.mappings.get(index)
    }

    /// A handle for I/O on `len` bytes of a mapping from `at` on, if they lie within it.
    pub(super) fn span(&self, index: usize, at: usize, len: usize) -> Option<Span> {
        let start = self.get(index)?.place(at, len)?;
        let keep: Arc<dyn Any + Send + Sync> = self.keep.clone();
        // SAFETY: within the mapping, which lives as long as `keep`.
        Some(unsafe { Span::from_raw(start, len, keep) })
    }

    /// A window on `len` bytes of a mapping from `at` on, if they lie within it, at a multiple of `align`.
    pub(super) fn window(&self, index: usize, at: usize, len: usize, align: usize) -> Option<Window> {
        let start = self.get(index)?.place(at, len)?;
        let aligned = (start.as_ptr() as usize).is_multiple_of(align);
        aligned.then(|| Window { start, len, hold: self.clone() })
    }
}

/// A structure in shared memory: numbers at fixed places, read and written by both sides.
pub(super) struct Window {
    start: NonNull<u8>,
    len: usize,
    hold: Hold,
}

// SAFETY: an address with a reference count on its owner; the bytes are only reached through raw copies and atomics.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// True if memory of the mappings that it belongs to was missing when it was touched.
    pub(super) fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    fn place(&self, at: usize, len: usize) -> *mut u8 {
        assert!(at <= self.len && len <= self.len - at, "{len} bytes at {at} of a window of {}", self.len);
        // SAFETY: within the window.
        unsafe { self.start.as_ptr().add(at) }
    }

    fn half(&self, at: usize) -> &AtomicU16 {
        let place = self.place(at, 2).cast::<u16>();
        assert!(place.is_aligned(), "a number lies across");
        // SAFETY: within the window, aligned; both sides read and write it as a whole.
        unsafe { AtomicU16::from_ptr(place) }
    }

    /// The 16-bit number at `at`; what was written before the other side stored it is seen after this.
    pub(super) fn load_16(&self, at: usize) -> u16 {
        u16::from_le(self.half(at).load(Ordering::Acquire))
    }

    /// Stores a 16-bit number; who sees it sees everything that was written before.
    pub(super) fn store_16(&self, at: usize, value: u16) {
        self.half(at).store(value.to_le(), Ordering::Release);
    }

    /// The byte at `at`.
    pub(super) fn load_8(&self, at: usize) -> u8 {
        // SAFETY: within the window; both sides read and write it as a whole.
        unsafe { AtomicU8::from_ptr(self.place(at, 1)) }.load(Ordering::Acquire)
    }

    /// Stores a byte; who sees it sees everything that was written before.
    pub(super) fn store_8(&self, at: usize, value: u8) {
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr(self.place(at, 1)) }.store(value, Ordering::Release);
    }

    /// Bytes, as they are now; they may be a mixture of what the other side is writing.
    pub(super) fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: within the window; no reference to shared bytes exists.
        unsafe { std::ptr::copy_nonoverlapping(self.place(at, N), bytes.as_mut_ptr(), N) };
        bytes
    }

    /// Writes bytes, which the other side looks at only after a [`Window::store_16`] that follows.
    pub(super) fn write<const N: usize>(&self, at: usize, bytes: [u8; N]) {
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.place(at, N), N) };
    }
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
