//! Memory for I/O.
//!
//! Owns aligned [`Buffer`]s, recycled on the thread that drops them, and [`Span`]s, the handles
//! that operations in flight hold. Invariants: a span keeps its memory allocated; a slice of a
//! buffer exists only while no span of the buffer exists, so that a Rust reference and a device
//! never access the same bytes. The bytes of a span are like device memory: they may change at any
//! time (a guest's buffer), so they are copied and never referenced. A span for reading
//! ([`Span::for_reading`]) is the exception: Rust references to its bytes exist beside it, and
//! nothing writes to them.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::any::Any;
use std::cell::RefCell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::size_class::{ALIGNMENT, CLASSES, capacity_for, capacity_of, class_of};

/// Limit of free memory that a thread keeps per size class, in bytes.
const RECYCLED_CLASS_BYTES: usize = 64 << 20;
/// The same for buffers of more than [`LARGE`] bytes, which records of the engine are: those of a
/// pool have few sizes, and few are written at once.
const RECYCLED_LARGE_BYTES: usize = 32 << 20;
const LARGE: usize = 4 << 20;

/// Owned, aligned, initialised memory.
pub struct Buffer {
    region: Arc<Region>,
    len: usize,
}

/// A handle to a contiguous run of memory that an I/O operation reads or fills. Keeps the memory
/// allocated.
#[derive(Clone)]
pub struct Span {
    start: NonNull<u8>,
    len: usize,
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: a span is an address with a reference count on its owner; the bytes are only reached
// through raw copies.
unsafe impl Send for Span {}
// SAFETY: as above; a shared span offers nothing that a sent clone does not.
unsafe impl Sync for Span {}

struct Region {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the region owns its allocation; access goes through `Buffer` (unique) or raw copies of
// `Span`.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

thread_local! {
    static FREE: RefCell<Recycler> = const { RefCell::new(Recycler::new()) };
}

struct Recycler {
    classes: [Vec<NonNull<u8>>; CLASSES],
}

impl Recycler {
    const fn new() -> Self {
        Self { classes: [const { Vec::new() }; CLASSES] }
    }
}

impl Drop for Recycler {
    fn drop(&mut self) {
        for (class, free) in self.classes.iter_mut().enumerate() {
            for start in free.drain(..) {
                // SAFETY: every pointer here was allocated with the layout of its class and has no
                // owner left.
                unsafe { std::alloc::dealloc(start.as_ptr(), layout(capacity_of(class))) };
            }
        }
    }
}

fn layout(capacity: usize) -> Layout {
    match Layout::from_size_align(capacity, ALIGNMENT) {
        Ok(layout) => layout,
        Err(_) => panic!("a buffer of {capacity} bytes is beyond any limit"),
    }
}

impl Region {
    fn new(len: usize) -> Self {
        let capacity = capacity_for(len);
        if let Some(start) = Self::recycled(capacity) {
            return Self { start, capacity };
        }
        let layout = layout(capacity);
        // SAFETY: the layout's size is at least ALIGNMENT, so not zero.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { std::alloc::handle_alloc_error(layout) };
        Self { start, capacity }
    }

    fn recycled(capacity: usize) -> Option<NonNull<u8>> {
        let class = class_of(capacity)?;
        FREE.with_borrow_mut(|free| free.classes.get_mut(class)?.pop())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let kept = class_of(self.capacity).is_some_and(|class| {
            FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                let Some(list) = free.classes.get_mut(class) else { return false };
                let limit = if self.capacity > LARGE { RECYCLED_LARGE_BYTES } else { RECYCLED_CLASS_BYTES };
                let room = (list.len() + 1) * self.capacity <= limit;
                if room {
                    list.push(self.start);
                }
                room
            })
            .unwrap_or(false)
        });
        if !kept {
            // SAFETY: allocated in `new` with this layout (recycled regions keep their class's
            // layout), freed once.
            unsafe { std::alloc::dealloc(self.start.as_ptr(), layout(self.capacity)) };
        }
    }
}

impl Buffer {
    /// Returns `len` bytes of initialised memory, aligned to [`ALIGNMENT`]. The contents are
    /// arbitrary: a recycled buffer still has its previous contents.
    pub fn new(len: usize) -> Self {
        Self { region: Arc::new(Region::new(len)), len }
    }

    /// Returns `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buffer = Self::new(len);
        buffer.as_mut_slice().fill(0);
        buffer
    }

    /// Returns a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.as_mut_slice().copy_from_slice(bytes);
        buffer
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes.
    ///
    /// # Panics
    /// If a span of this buffer still exists: an operation may be changing the bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.assert_unshared();
        // SAFETY: initialised, `len` within the allocation, and no span exists, so nothing writes
        // while `self` is borrowed (making a span needs `&self` too, but spans only copy on their
        // holder's request).
        unsafe { std::slice::from_raw_parts(self.region.start.as_ptr(), self.len) }
    }

    /// Returns the bytes for writing.
    ///
    /// # Panics
    /// If a span of this buffer still exists.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.assert_unshared();
        // SAFETY: as in `as_slice`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.region.start.as_ptr(), self.len) }
    }

    /// Returns a handle to the whole buffer, for an operation.
    pub fn span(&self) -> Span {
        Span { start: self.region.start, len: self.len, keep: self.region.clone() }
    }

    fn assert_unshared(&self) {
        assert_eq!(
            Arc::strong_count(&self.region),
            1,
            "a buffer was accessed while an operation may hold it"
        );
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

impl Span {
    /// Returns a handle to memory with another owner (a guest's memory, a mapped file).
    ///
    /// # Safety
    /// The `len` bytes at `start` stay readable and writable until `keep` and every clone of it are
    /// dropped.
    pub unsafe fn from_raw(start: NonNull<u8>, len: usize, keep: Arc<dyn Any + Send + Sync>) -> Self {
        Self { start, len, keep }
    }

    /// Returns a handle to the bytes of `owner`, for operations that only read them.
    ///
    /// # Safety
    /// `owner` returns the same bytes at each call, also after it was moved, and no operation on
    /// the handle or on a part of it changes them.
    pub unsafe fn for_reading<T: AsRef<[u8]> + Send + Sync + 'static>(owner: T) -> Self {
        let owner = Arc::new(owner);
        let bytes = (*owner).as_ref();
        let (start, len) = (NonNull::from(bytes).cast(), bytes.len());
        Self { start, len, keep: owner }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the address and the size in bytes of the allocation that this handle keeps; of the
    /// span itself if its memory has another owner.
    pub fn allocation(&self) -> (usize, usize) {
        let own = (self.start.as_ptr() as usize, self.len);
        self.keep
            .downcast_ref::<Region>()
            .map_or(own, |region| (region.start.as_ptr() as usize, region.capacity))
    }

    /// True if address and length are multiples of `unit`.
    pub fn is_aligned(&self, unit: usize) -> bool {
        (self.start.as_ptr() as usize).is_multiple_of(unit) && self.len.is_multiple_of(unit)
    }

    /// Returns a handle to a part of these bytes.
    ///
    /// # Panics
    /// If the range does not lie within the span.
    pub fn slice(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of a span of {}", self.len);
        // SAFETY: the offset lies within the same allocation.
        let start = unsafe { self.start.add(range.start) };
        Self { start, len: range.end - range.start, keep: self.keep.clone() }
    }

    /// Copies `bytes` into the span at offset `at`.
    ///
    /// # Panics
    /// If they do not fit.
    pub fn copy_from(&self, at: usize, bytes: &[u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "copy beyond a span");
        // SAFETY: in bounds; a reference and a span that may be written never name the same bytes,
        // so the ranges do not overlap. The creator of a span for reading excludes this call.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
    }

    /// Copies bytes of the span, from offset `at`, into `bytes`.
    ///
    /// # Panics
    /// If `bytes` reaches past the end of the span.
    pub fn copy_to(&self, at: usize, bytes: &mut [u8]) {
        assert!(at <= self.len && bytes.len() <= self.len - at, "copy beyond a span");
        // SAFETY: in bounds; `bytes` is exclusive, so it is no memory of a span.
        unsafe {
            std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), bytes.as_mut_ptr(), bytes.len())
        };
    }

    /// Copies the bytes of `other`, which has the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_from_span(&self, other: &Span) {
        assert_eq!(self.len, other.len, "copy between spans of different length");
        // SAFETY: both are valid for the length; they may overlap (slices of one span), so this is
        // a move. The creator of a span for reading excludes this call.
        unsafe { std::ptr::copy(other.start.as_ptr(), self.start.as_ptr(), self.len) };
    }

    /// Lets `look` read the bytes in place: for checksums over memory that an operation has just
    /// filled.
    ///
    /// The memory's owner (a guest) may change it meanwhile; `look` must not rely on reading the
    /// same byte twice.
    pub fn peek<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        // SAFETY: allocated and initialised for `len` bytes while `self` lives. Concurrent change
        // by a guest or device is outside Rust's memory model, as for any mapped device memory;
        // callers copy first where it matters.
        look(unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) })
    }

    /// Fills the span with zeros.
    pub fn zero(&self) {
        // SAFETY: in bounds; no reference to these bytes exists, as in `copy_from`.
        unsafe { std::ptr::write_bytes(self.start.as_ptr(), 0, self.len) };
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Span({} bytes)", self.len)
    }
}

#[cfg(test)]
#[path = "buffer_tests.rs"]
mod tests;
