//! A drive: persistent bytes at offsets.
//!
//! The interface between the engine and storage. Implementations: [`crate::MemoryDrive`], io_uring
//! and threads on block devices and files, and the simulator's drives.

use crate::{Io, Span};

/// Properties of a drive, fixed while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveProperties {
    /// Capacity in bytes.
    pub size: u64,
    /// Smallest unit of I/O in bytes: offsets, lengths and memory are multiples of it.
    pub logical_sector: u32,
    /// Smallest unit that the drive writes without read-modify-write, in bytes.
    pub physical_sector: u32,
    /// True if a power failure may lose completed writes that no [`Drive::flush`] has followed.
    pub volatile_cache: bool,
    /// True if [`Drive::discard`] frees space.
    pub discard: bool,
    /// True if space is allocated on write and may run out; [`Drive::reserve`] allocates it in
    /// advance.
    pub sparse: bool,
    /// True for rotational drives.
    pub rotational: bool,
}

/// A drive opened on one reactor. Any number of operations may be in flight; they complete in any
/// order.
///
/// Offsets, lengths and the memory of spans are multiples of 4096. A completed read or write has
/// transferred every byte: the implementation continues short transfers.
pub trait Drive {
    /// Returns the drive's properties.
    fn properties(&self) -> DriveProperties;

    /// Reads from `offset` into the spans of `into`, in order.
    fn read(&self, offset: u64, into: &[Span]) -> Io;

    /// Writes the spans of `from`, in order, at `offset`. Durable after a later [`Drive::flush`],
    /// or on completion on a drive without a volatile cache.
    fn write(&self, offset: u64, from: &[Span]) -> Io;

    /// Makes every write that completed before this call durable.
    fn flush(&self) -> Io;

    /// Marks the range as unused; its contents are undefined afterwards.
    fn discard(&self, offset: u64, length: u64) -> Io;

    /// Ensures that writes to this range cannot run out of space. Allocates in files; does nothing
    /// on devices.
    fn reserve(&self, offset: u64, length: u64) -> Io;
}
