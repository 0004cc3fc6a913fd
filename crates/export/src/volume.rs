//! What an export needs of a volume.
//!
//! Owns the [`Volume`] trait and its error. Always true: the trait speaks of bytes and ranges only; nothing in it belongs
//! to one protocol or to one way of storing.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;

use reactor::Span;

/// A range of bytes that can be read and written, as one reactor uses it: nothing here crosses threads.
///
/// Offsets and lengths are bytes, in whole sectors, and lie within [`Volume::size`]; lengths are not zero. Spans have any
/// address: only direct I/O cares about alignment, and whoever does it sees to it. Any number of operations may be in
/// flight. Operations that overlap in time have no order among each other; where they overlap in place too, each sector
/// holds what one of them wrote.
///
/// A future does nothing before it is polled. Once polled it is driven to its end, even when nobody waits for the
/// result: an export never drops an operation in the middle.
pub trait Volume {
    /// Size in bytes, now: a multiple of the sector size. Changes when the volume is resized.
    fn size(&self) -> u64;

    /// The smallest unit of access in bytes: a power of two, at least 512, at most 65,536. Never changes.
    fn sector(&self) -> u32;

    /// True if writes are refused, now.
    fn read_only(&self) -> bool;

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `Invalid` beyond the end, `Io` for what cannot be read, `Closed`. Nothing is known of `into` then.
    fn read(&self, offset: u64, into: &Span) -> impl Future<Output = Result<(), VolumeError>>;

    /// Writes `data` from `offset` on. Durable after a later [`Volume::flush`].
    ///
    /// # Errors
    /// `Invalid` beyond the end, `NoSpace`, `ReadOnly`, `Io`, `Closed`. Each sector holds its old or its new bytes then.
    fn write(&self, offset: u64, data: &Span) -> impl Future<Output = Result<(), VolumeError>>;

    /// Makes every change that was answered before the call durable, whichever handle of the volume it came through, on
    /// whichever reactor.
    ///
    /// # Errors
    /// `Io` when what was not flushed before may be lost; `Closed`.
    fn flush(&self) -> impl Future<Output = Result<(), VolumeError>>;

    /// Tells that the bytes of a range are no longer wanted. Reads of it give its old bytes or zeros from then on.
    ///
    /// # Errors
    /// As [`Volume::write`].
    fn discard(&self, offset: u64, length: u64) -> impl Future<Output = Result<(), VolumeError>>;

    /// Makes a range read as zeros, in much less time than writing as many zeros takes. What it held may be freed.
    ///
    /// # Errors
    /// As [`Volume::write`].
    fn write_zeroes(&self, offset: u64, length: u64) -> impl Future<Output = Result<(), VolumeError>>;

    /// What of a range, which is not empty, holds data, in order; the lengths are not zero and add up to `length`, or to less where
    /// there is much to tell: never to nothing, and not to less than 64 MiB. Neighbours may be of the same kind. What is not known to
    /// be a hole is data.
    ///
    /// # Errors
    /// As [`Volume::read`].
    fn extents(&self, offset: u64, length: u64) -> impl Future<Output = Result<Vec<Extent>, VolumeError>>;

    /// The bytes at `offset` will be read or written soon: a hint, given for some requests at once, before they are carried
    /// out one after the other.
    fn expect(&self, offset: u64) {
        let _ = offset;
    }

    /// The bytes at `offset` will be read next, after the request that is about to be carried out: a hint.
    fn prefetch_hint(&self, offset: u64) {
        let _ = offset;
    }

    /// Waits until the volume is taken away: exports finish what they have begun, and let go of it. For volumes that never
    /// are, this never ends.
    fn withdrawn(&self) -> impl Future<Output = ()> {
        std::future::pending()
    }
}

/// A stretch of a volume that holds data, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// True if it holds data; otherwise it takes no space and reads as zeros.
    pub data: bool,
}

/// Why a volume did not do what it was asked, for control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeErrorKind {
    /// There is no room for new data. Reading, discarding and zeroing go on.
    NoSpace,
    /// The bytes could not be read, or not be stored.
    Io,
    /// The request makes no sense: it lies beyond the end, or is no whole number of sectors.
    Invalid,
    /// The volume may not be written.
    ReadOnly,
    /// The volume was closed or deleted meanwhile.
    Closed,
}

/// A request that a volume could not carry out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct VolumeError {
    kind: VolumeErrorKind,
    message: Cow<'static, str>,
}

impl VolumeError {
    /// An error with a message for people: what was asked, and what stood in the way.
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
