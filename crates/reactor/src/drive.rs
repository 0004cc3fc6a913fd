//! A drive: bytes at offsets, that survive once flushed.
//!
//! The boundary between the engine and everything that stores. Implementations: [`crate::MemoryDrive`], io_uring and
//! plain threads on block devices and files, and the simulator's.

use crate::{Io, ReadWindow, Span, WriteWindow};

/// What a drive is, fixed while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveProperties {
    /// Capacity in bytes.
    pub size: u64,
    /// Smallest unit that can be read or written, in bytes: offsets, lengths and memory are multiples of it.
    pub logical_sector: u32,
    /// Unit that the drive writes without reading first, in bytes.
    pub physical_sector: u32,
    /// True if completed writes may be lost at a power cut until [`Drive::flush`] completes.
    pub volatile_cache: bool,
    /// True if [`Drive::discard`] gives space back.
    pub discard: bool,
    /// True if space is taken as it is written, and may run out: [`Drive::reserve`] takes it before.
    pub sparse: bool,
    /// True for drives with seek times.
    pub rotational: bool,
}

/// A drive opened on one reactor. Operations may be submitted in any number; they complete in any order.
///
/// Offsets, lengths and the memory of spans are multiples of 4096. A completed read or write has transferred every
/// byte: short transfers are the implementation's to continue.
pub trait Drive {
    /// What this drive is.
    fn properties(&self) -> DriveProperties;

    /// Reads the bytes from `offset` into `into`, one span after the other.
    fn read(&self, offset: u64, into: &[Span]) -> Io;

    /// Writes `from`, one span after the other, at `offset`. Durable after a later [`Drive::flush`], or at once on a
    /// drive without a volatile cache.
    fn write(&self, offset: u64, from: &[Span]) -> Io;

    /// Makes every write that completed before this call durable.
    fn flush(&self) -> Io;

    /// Tells the drive that the bytes in this range are no longer wanted; what is read there next is undefined.
    fn discard(&self, offset: u64, length: u64) -> Io;

    /// A read of this range is about to begin: a hint, for drives that can get ready for it.
    fn prefetch_hint(&self, offset: u64, length: usize) {
        let _ = (offset, length);
    }

    /// The bytes of this range where they lie, if the drive is memory of this process: who copies them himself can look at them on
    /// the way. Not for drives on which a device moves data.
    fn read_window(&self, offset: u64, length: usize) -> Option<ReadWindow<'_>> {
        let _ = (offset, length);
        None
    }

    /// The same bytes to be written where they lie: what is stored there is written, at once. For drives without a volatile cache.
    fn write_window(&self, offset: u64, length: usize) -> Option<WriteWindow<'_>> {
        let _ = (offset, length);
        None
    }

    /// Makes sure that writes in this range will not run out of space (files: allocates; drives: nothing to do).
    fn reserve(&self, offset: u64, length: u64) -> Io;
}
