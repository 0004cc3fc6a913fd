//! Scatter-gather lists for system calls, built without Rust references to the bytes.
//!
//! Owns the `iovec` array of one system call. Invariant: an iovec names memory that a [`Span`]
//! keeps allocated; the submitter keeps those spans until the kernel is done.
#![allow(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};

use smallvec::SmallVec;

use crate::Span;

/// Maximum number of iovecs per system call (the kernel's UIO_MAXIOV).
const IOVECS_MAX: usize = 1024;
/// Maximum bytes per system call: below the kernel's own limit, and page-aligned.
const BYTES_MAX: usize = 1 << 30;

/// The kernel's `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Iovec {
    start: *mut u8,
    len: usize,
}

// The standard library guarantees this layout for its slices on Unix, which makes the casts below
// valid.
const _: () = assert!(size_of::<Iovec>() == size_of::<IoSlice<'_>>());
const _: () = assert!(align_of::<Iovec>() == align_of::<IoSlice<'_>>());

/// The iovecs of one system call.
pub(crate) type Iovecs = SmallVec<[Iovec; 4]>;

/// The spans of an operation, in order, and the number of bytes already transferred.
pub(crate) struct SpanCursor {
    spans: Spans,
    total: usize,
    done: usize,
}

/// The spans of one operation.
pub(crate) type Spans = SmallVec<[Span; 2]>;

impl SpanCursor {
    pub(crate) fn new(spans: &[Span]) -> Self {
        Self::from_spans(spans.iter().cloned().collect())
    }

    pub(crate) fn from_spans(spans: Spans) -> Self {
        let total = spans.iter().map(Span::len).sum();
        Self { spans, total, done: 0 }
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn done(&self) -> usize {
        self.done
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.done == self.total
    }

    /// Counts `bytes` more as transferred.
    pub(crate) fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.total - self.done, "the kernel transferred more bytes than requested");
        self.done += bytes;
    }

    /// Returns the rest if it is one contiguous run of memory.
    pub(crate) fn single(&self) -> Option<(*mut u8, u32)> {
        let [span] = self.spans.as_slice() else { return None };
        let len = (self.total - self.done).min(BYTES_MAX);
        // SAFETY: `done` is at most the span's length.
        let start = unsafe { span.as_ptr().add(self.done) };
        Some((start, len as u32))
    }

    /// Returns the rest, limited to one system call.
    pub(crate) fn iovecs(&self) -> Iovecs {
        let (mut skip, mut room) = (self.done, BYTES_MAX);
        let mut iovecs = Iovecs::new();
        for span in &self.spans {
            if skip >= span.len() {
                skip -= span.len();
                continue;
            }
            if room == 0 || iovecs.len() == IOVECS_MAX {
                break;
            }
            let len = (span.len() - skip).min(room);
            // SAFETY: `skip` is less than the span's length.
            let start = unsafe { span.as_ptr().add(skip) };
            iovecs.push(Iovec { start, len });
            (skip, room) = (0, room - len);
        }
        iovecs
    }
}

/// Returns the iovecs as a list of memory to read from.
pub(crate) fn as_slices(iovecs: &[Iovec]) -> &[IoSlice<'_>] {
    // SAFETY: same layout (asserted above). No reference to the bytes is made: the list only goes
    // to a system call.
    unsafe { std::slice::from_raw_parts(iovecs.as_ptr().cast(), iovecs.len()) }
}

/// Returns the iovecs as a list of memory to fill.
pub(crate) fn as_mut_slices(iovecs: &mut [Iovec]) -> &mut [IoSliceMut<'_>] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(iovecs.as_mut_ptr().cast(), iovecs.len()) }
}

#[cfg(test)]
#[path = "iovec_tests.rs"]
mod tests;
