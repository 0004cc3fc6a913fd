//! A drive in memory, for benchmarks, tests and scratch pools. Each operation completes before the
//! call returns.
//!
//! The drive never returns allocated memory to the system, even for discards: allocating it again
//! would take longer than any other operation. Several reactors may open the same memory, like a
//! real drive. As on a real drive, concurrent overlapping operations leave or return the bytes of
//! either one.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::{Drive, DriveProperties, Io, IoError, IoErrorKind, ReadWindow, Span, WriteWindow};

/// Maximum bytes to prefetch: the hardware prefetcher fetches the rest once the copy runs, and
/// prefetching all of 4 KiB takes longer than it saves.
const PREFETCH_MAX: usize = 1024;

/// The bytes of a memory drive. Zero at first; allocated on write.
pub struct Memory {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping is only reached through raw copies, like a device that several hosts use.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Returns memory for a drive of `size` bytes.
    ///
    /// # Errors
    /// When the address space cannot be mapped.
    pub fn new(size: usize) -> Result<Arc<Self>, IoError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses overlaps no other
        // memory.
        let start =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), size.max(1), protection, flags) }?;
        // SAFETY: the range is the mapping just made. Huge pages are optional; a refusal changes
        // nothing.
        let _ = unsafe { rustix::mm::madvise(start, size.max(1), Advice::LinuxHugepage) };
        let start = NonNull::new(start.cast()).ok_or(IoError::new(IoErrorKind::Other))?;
        Ok(Arc::new(Self { start, size }))
    }

    /// Makes the kernel allocate every page now, so that measurements exclude it.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn populate(&self) -> Result<(), IoError> {
        // SAFETY: the range is our own mapping; pages are only allocated, not changed.
        unsafe {
            rustix::mm::madvise(self.start.as_ptr().cast(), self.size.max(1), Advice::LinuxPopulateWrite)
        }?;
        Ok(())
    }

    /// Opens the memory as a drive of this reactor.
    pub fn open(self: &Arc<Self>) -> Rc<MemoryDrive> {
        Rc::new(MemoryDrive { memory: self.clone() })
    }

    fn at(&self, offset: u64, length: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(length)?;
        // SAFETY: checked to lie within the mapping.
        (end <= self.size).then(|| unsafe { self.start.as_ptr().add(offset) })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this size; no handle to the memory is left.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.size.max(1)) };
    }
}

/// A memory drive opened on one reactor.
pub struct MemoryDrive {
    memory: Arc<Memory>,
}

impl MemoryDrive {
    /// Runs `copy(drive address, span)` for each span, or fails if the spans reach past the end.
    fn each(&self, offset: u64, spans: &[Span], copy: impl Fn(*mut u8, &Span)) -> Io {
        let length: usize = spans.iter().map(Span::len).sum();
        let Some(mut at) = self.memory.at(offset, length) else {
            return Io::ready(Err(IoError::new(IoErrorKind::OutOfRange)));
        };
        for span in spans {
            copy(at, span);
            // SAFETY: the sum of the lengths was checked against the mapping.
            at = unsafe { at.add(span.len()) };
        }
        Io::ready(Ok(length))
    }
}

impl Drive for MemoryDrive {
    fn properties(&self) -> DriveProperties {
        DriveProperties {
            size: self.memory.size as u64,
            logical_sector: 512,
            physical_sector: 4096,
            volatile_cache: false,
            discard: false,
            sparse: false,
            rotational: false,
        }
    }

    fn read(&self, offset: u64, into: &[Span]) -> Io {
        self.each(offset, into, |at, span| {
            // SAFETY: both ranges are valid for the length and belong to different owners.
            unsafe { std::ptr::copy_nonoverlapping(at, span.as_ptr(), span.len()) }
        })
    }

    fn write(&self, offset: u64, from: &[Span]) -> Io {
        self.each(offset, from, |at, span| {
            // SAFETY: as in `read`.
            unsafe { crate::stream::copy(span.as_ptr(), at, span.len()) }
        })
    }

    fn flush(&self) -> Io {
        Io::ready(Ok(0))
    }

    fn discard(&self, offset: u64, length: u64) -> Io {
        match usize::try_from(length).ok().and_then(|length| self.memory.at(offset, length)) {
            Some(_) => Io::ready(Ok(0)),
            None => Io::ready(Err(IoError::new(IoErrorKind::OutOfRange))),
        }
    }

    fn prefetch_hint(&self, offset: u64, length: usize) {
        if let Some(at) = self.memory.at(offset, length) {
            crate::prefetch(at, length.min(PREFETCH_MAX));
        }
    }

    fn read_window(&self, offset: u64, length: usize) -> Option<ReadWindow<'_>> {
        self.memory.at(offset, length).map(|start| ReadWindow::new(start, length))
    }

    fn write_window(&self, offset: u64, length: usize) -> Option<WriteWindow<'_>> {
        // SAFETY: within the mapping, which the drive keeps; no references to it are ever made.
        self.memory.at(offset, length).map(|start| unsafe { WriteWindow::new(start, length) })
    }

    fn reserve(&self, _offset: u64, _length: u64) -> Io {
        Io::ready(Ok(0))
    }
}
