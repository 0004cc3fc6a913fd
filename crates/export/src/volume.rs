//! The interface between frontends and storage.
//!
//! Owns the [`Volume`] trait and its error. Always true: the trait consists of byte ranges; nothing
//! in it belongs to one protocol or one way of storing data.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;

use reactor::{Buffer, Span};

/// A range of bytes that can be read and written, as one reactor uses it: it never crosses threads.
///
/// Offsets and lengths are in bytes, multiples of the sector size, and within [`Volume::size`];
/// lengths are not zero. Spans may have any alignment: an implementation with direct I/O aligns
/// them itself. Any number of operations may be in flight. Concurrent operations are not ordered;
/// where they overlap, each sector holds the data of one of them.
///
/// A future does nothing before it is polled. Once polled, it is driven to completion even if its
/// result is not needed: exports never drop an operation in flight.
pub trait Volume {
    /// Returns the current size in bytes: a multiple of the sector size. It changes when the volume
    /// is resized.
    fn size(&self) -> u64;

    /// Returns the smallest unit of access in bytes: a power of two from 512 to 65,536. It never
    /// changes.
    fn sector(&self) -> u32;

    /// Returns true if writes are refused at present.
    fn read_only(&self) -> bool;

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `Invalid` beyond the end, `Io` for unreadable data, `Closed`. The contents of `into` are
    /// undefined then.
    fn read(&self, offset: u64, into: &Span) -> impl Future<Output = Result<(), VolumeError>>;

    /// Writes `data` at `offset`. Durable after a later [`Volume::flush`].
    ///
    /// # Errors
    /// `Invalid` beyond the end, `NoSpace`, `ReadOnly`, `Io`, `Closed`. Each sector holds its old
    /// or its new data then.
    fn write(&self, offset: u64, data: &Span) -> impl Future<Output = Result<(), VolumeError>>;

    /// Returns true if reads and writes may wait before they begin, as for a rate limit.
    fn may_defer(&self) -> bool {
        false
    }

    /// As [`Volume::read`], but aborted if `abort` completes before the read begins. Without a
    /// wait it begins at once.
    ///
    /// # Errors
    /// As [`Volume::read`].
    fn read_unless(
        &self,
        offset: u64,
        into: &Span,
        abort: impl Future<Output = ()>,
    ) -> impl Future<Output = Result<Execution, VolumeError>> {
        drop(abort);
        async move { self.read(offset, into).await.map(|()| Execution::Completed) }
    }

    /// As [`Volume::write`], but aborted if `abort` completes before the write begins. Without a
    /// wait it begins at once.
    ///
    /// # Errors
    /// As [`Volume::write`].
    fn write_unless(
        &self,
        offset: u64,
        data: &Span,
        abort: impl Future<Output = ()>,
    ) -> impl Future<Output = Result<Execution, VolumeError>> {
        drop(abort);
        async move { self.write(offset, data).await.map(|()| Execution::Completed) }
    }

    /// Makes every change durable that completed before the call, through any handle of the volume
    /// on any reactor.
    ///
    /// # Errors
    /// `Io` when changes since the last flush may be lost; `Closed`.
    fn flush(&self) -> impl Future<Output = Result<(), VolumeError>>;

    /// Discards a range. Later reads return its old data or zeros.
    ///
    /// # Errors
    /// As [`Volume::write`].
    fn discard(&self, offset: u64, length: u64) -> impl Future<Output = Result<(), VolumeError>>;

    /// Zeroes a range, much faster than writing zeros. Its space may be freed.
    ///
    /// # Errors
    /// As [`Volume::write`].
    fn write_zeroes(&self, offset: u64, length: u64) -> impl Future<Output = Result<(), VolumeError>>;

    /// Returns which parts of a range hold data, in order. Lengths are not zero. They add up to
    /// `length`, or to less for a long answer, but at least to 64 MiB. Adjacent extents may be of
    /// the same kind. A part that may be a hole is reported as data.
    ///
    /// # Errors
    /// As [`Volume::read`].
    fn extents(&self, offset: u64, length: u64) -> impl Future<Output = Result<Vec<Extent>, VolumeError>>;

    /// Returns the limits of atomic writes: a write within them is stored completely or not at all,
    /// also after a power failure.
    fn atomic_limits(&self) -> AtomicLimits {
        AtomicLimits { bytes: self.sector(), boundary: None }
    }

    /// Writes `data` at `offset` if the range holds `expected`, as one atomic step: no other write
    /// to the range happens between the comparison and the write. Durable after a later
    /// [`Volume::flush`].
    ///
    /// # Errors
    /// `Invalid` if the lengths differ, or beyond [`Volume::atomic_limits`], or if the
    /// volume does not compare atomically; otherwise as [`Volume::read`] and [`Volume::write`].
    fn compare_and_write(
        &self,
        offset: u64,
        expected: &Span,
        data: &Span,
    ) -> impl Future<Output = Result<Comparison, VolumeError>> {
        let _ = (offset, expected, data);
        let message = "the volume does not compare and write atomically";
        std::future::ready(Err(VolumeError::new(VolumeErrorKind::Invalid, message)))
    }

    /// Copies `length` bytes from offset `from` of `source`, another handle of this volume, to
    /// `offset`. The ranges do not overlap. Durable after a later [`Volume::flush`].
    ///
    /// # Errors
    /// As [`Volume::read`] and [`Volume::write`]. A part of the range may have been copied then.
    fn copy_from(
        &self,
        source: &Self,
        from: u64,
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<(), VolumeError>> {
        copy_in_parts(source, self, from, offset, length)
    }

    /// Hints that the bytes at `offset` will be read or written soon. Exports pass hints for
    /// several requests before they execute these one by one.
    fn prefetch_hint(&self, offset: u64) {
        let _ = offset;
    }

    /// Waits until the volume is withdrawn: exports then finish their requests and drop it. Never
    /// completes for a volume that is not withdrawn.
    fn withdrawn(&self) -> impl Future<Output = ()> {
        std::future::pending()
    }
}

/// Bytes that [`copy_in_parts`] reads and writes at once.
const COPY_PART: u64 = 256 << 10;

/// Copies a range through memory, part by part.
async fn copy_in_parts<V: Volume + ?Sized>(
    source: &V,
    target: &V,
    from: u64,
    offset: u64,
    length: u64,
) -> Result<(), VolumeError> {
    let mut done = 0;
    while done < length {
        let part = COPY_PART.min(length - done);
        let buffer = Buffer::new(usize::try_from(part).unwrap_or(0)).span();
        source.read(from + done, &buffer).await?;
        target.write(offset + done, &buffer).await?;
        done += part;
    }
    Ok(())
}

/// The limits of atomic writes of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicLimits {
    /// The most bytes of an atomic write, at any offset: a multiple of the sector size.
    pub bytes: u32,
    /// An atomic write does not cross a multiple of this many bytes.
    pub boundary: Option<u64>,
}

impl AtomicLimits {
    /// True if a write of this range is atomic.
    pub fn covers(&self, offset: u64, length: u64) -> bool {
        let crosses = |boundary: u64| offset / boundary != (offset + length.saturating_sub(1)) / boundary;
        length <= self.bytes.into() && !self.boundary.is_some_and(crosses)
    }
}

/// The outcome of an operation that could be aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// It has begun, and is complete.
    Completed,
    /// It was aborted before it began, without an effect.
    Aborted,
}

/// The result of [`Volume::compare_and_write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The range held the expected bytes, and holds the new ones.
    Written,
    /// The range differs from the expected bytes at this byte of the range, and is unchanged.
    Differs {
        /// The first byte that differs, counted from the start of the range.
        at: u64,
    },
}

/// A part of a volume that holds data, or a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub length: u64,
    /// True for data. A hole takes no space and reads as zeros.
    pub data: bool,
}

/// The reason why an operation failed, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeErrorKind {
    /// There is no space for new data. Reads, discards and zeroing still work.
    NoSpace,
    /// The data could not be read or stored.
    Io,
    /// The request is invalid: beyond the end, or not a multiple of the sector size.
    Invalid,
    /// The volume refuses writes.
    ReadOnly,
    /// The volume was closed or deleted.
    Closed,
}

/// An operation that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct VolumeError {
    kind: VolumeErrorKind,
    message: Cow<'static, str>,
}

impl VolumeError {
    /// An error with a message for people that names the operation and the cause.
    pub fn new(kind: VolumeErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The kind, for control flow.
    pub fn kind(&self) -> VolumeErrorKind {
        self.kind
    }

    /// The message, for people.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for VolumeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSpace => "no space",
            Self::Io => "input/output error",
            Self::Invalid => "invalid request",
            Self::ReadOnly => "read-only",
            Self::Closed => "closed",
        })
    }
}
