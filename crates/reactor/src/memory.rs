//! A drive in memory, for benchmarks, tests and scratch pools.
//!
//! An operation is queued, and is executed and completed in a later turn of the reactor, like an
//! operation of a device: callers take the same path as with any other drive.
//!
//! The drive never returns allocated memory to the system, even for discards: allocating it again
//! would take longer than any other operation. Several reactors may open the same memory, like a
//! real drive. As on a real drive, concurrent overlapping operations leave or return the bytes of
//! either one.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::iovec::Spans;
use crate::{
    Completer, Drive, DriveProperties, Io, IoError, IoErrorKind, IoResult, Reactor, Span, completion,
};

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

    /// Opens the memory as a drive of the current reactor.
    ///
    /// # Panics
    /// Outside of [`Reactor::run`].
    pub fn open(self: &Arc<Self>) -> Rc<MemoryDrive> {
        let queue = Queue {
            memory: self.clone(),
            reactor: Reactor::current(),
            pending: RefCell::default(),
            spare: Cell::default(),
        };
        Rc::new(MemoryDrive { queue: Rc::new(queue) })
    }

    /// Copies bytes at `offset` to `into`, without a drive. Returns false if they are out of range.
    pub fn copy_to(&self, offset: u64, into: &mut [u8]) -> bool {
        let Some(at) = self.at(offset, into.len()) else { return false };
        // SAFETY: both ranges are valid for the length and belong to different owners.
        unsafe { std::ptr::copy_nonoverlapping(at, into.as_mut_ptr(), into.len()) };
        true
    }

    /// Copies `from` to the bytes at `offset`, without a drive. Returns false if they are out of
    /// range.
    pub fn copy_from(&self, offset: u64, from: &[u8]) -> bool {
        let Some(at) = self.at(offset, from.len()) else { return false };
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), at, from.len()) };
        true
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
///
/// Operations are executed in the order of their submission, by a task of the reactor.
pub struct MemoryDrive {
    queue: Rc<Queue>,
}

/// The operations that were submitted since the task last ran.
struct Queue {
    memory: Arc<Memory>,
    reactor: Reactor,
    pending: RefCell<Vec<MemoryOp>>,
    /// The storage of the previous batch, for reuse.
    spare: Cell<Vec<MemoryOp>>,
}

struct MemoryOp {
    action: MemoryAction,
    offset: u64,
    length: usize,
    completer: Completer,
}

enum MemoryAction {
    Read(Spans),
    Write(Spans),
    /// A flush, discard or reservation, which moves no bytes.
    Nothing,
}

impl MemoryDrive {
    fn submit(&self, action: MemoryAction, offset: u64, length: usize) -> Io {
        let (completer, io) = completion();
        let mut pending = self.queue.pending.borrow_mut();
        if pending.is_empty() {
            let queue = self.queue.clone();
            self.queue.reactor.spawn(async move { queue.execute() }).detach();
        }
        pending.push(MemoryOp { action, offset, length, completer });
        io
    }
}

impl Queue {
    /// Executes the pending operations. Operations that are submitted meanwhile belong to the next
    /// batch.
    fn execute(&self) {
        let mut batch = self.pending.replace(self.spare.take());
        for MemoryOp { action, offset, length, completer } in batch.drain(..) {
            completer.complete(self.transfer(&action, offset, length));
        }
        self.spare.set(batch);
    }

    fn transfer(&self, action: &MemoryAction, offset: u64, length: usize) -> IoResult {
        let Some(mut at) = self.memory.at(offset, length) else {
            return Err(IoError::new(IoErrorKind::OutOfRange));
        };
        let spans = match action {
            MemoryAction::Read(spans) | MemoryAction::Write(spans) => spans,
            MemoryAction::Nothing => return Ok(0),
        };
        for span in spans {
            // SAFETY: both ranges are valid for the length and belong to different owners; the sum
            // of the lengths was checked against the mapping.
            unsafe {
                match action {
                    MemoryAction::Read(_) => std::ptr::copy_nonoverlapping(at, span.as_ptr(), span.len()),
                    MemoryAction::Write(_) => crate::stream::copy(span.as_ptr(), at, span.len()),
                    MemoryAction::Nothing => {}
                }
                at = at.add(span.len());
            }
        }
        Ok(length)
    }
}

impl Drive for MemoryDrive {
    fn properties(&self) -> DriveProperties {
        DriveProperties {
            size: self.queue.memory.size as u64,
            logical_sector: 512,
            physical_sector: 4096,
            volatile_cache: false,
            discard: false,
            sparse: false,
            rotational: false,
        }
    }

    fn read(&self, offset: u64, into: &[Span]) -> Io {
        let length = into.iter().map(Span::len).sum();
        self.submit(MemoryAction::Read(into.iter().cloned().collect()), offset, length)
    }

    fn write(&self, offset: u64, from: &[Span]) -> Io {
        let length = from.iter().map(Span::len).sum();
        self.submit(MemoryAction::Write(from.iter().cloned().collect()), offset, length)
    }

    fn flush(&self) -> Io {
        self.submit(MemoryAction::Nothing, 0, 0)
    }

    fn discard(&self, offset: u64, length: u64) -> Io {
        self.submit(MemoryAction::Nothing, offset, usize::try_from(length).unwrap_or(usize::MAX))
    }

    fn reserve(&self, offset: u64, length: u64) -> Io {
        self.submit(MemoryAction::Nothing, offset, usize::try_from(length).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
