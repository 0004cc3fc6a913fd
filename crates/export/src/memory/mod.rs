//! A volume in memory, for tests, benchmarks and scratch data.
//!
//! Owns the bytes and their allocation. Always true: every operation takes effect immediately when
//! its future is polled, unless a fault hook holds it. Must not know its users.

mod chunks;
mod exports;
mod faults;
mod source;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::{Buffer, Span};

use crate::{AtomicLimits, Comparison, Execution, Extent, Stop, Volume, VolumeError, VolumeErrorKind};
use chunks::Chunks;
pub use exports::MemoryExports;
pub use faults::MemoryFaults;
pub use source::MemorySource;

/// The most bytes of an atomic write.
const ATOMIC_MAX: u32 = 1 << 20;

/// A volume in memory, sparse in units of 4096 bytes. A clone is another handle to the same bytes.
#[derive(Clone)]
pub struct MemoryVolume {
    shared: Rc<MemoryVolumeState>,
}

struct MemoryVolumeState {
    size: Cell<u64>,
    sector: u32,
    read_only: Cell<bool>,
    chunks: RefCell<Chunks>,
    faults: MemoryFaults,
    counters: Cell<MemoryCounters>,
    withdrawn: Stop,
}

/// Number of operations that a [`MemoryVolume`] has received, including refused ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Ranges zeroed.
    pub zeroes: u64,
    /// Extent lists.
    pub extents: u64,
}

impl MemoryVolume {
    /// Creates a volume of `size` zero bytes, a multiple of `sector`. Memory is allocated only for
    /// written data.
    ///
    /// # Panics
    /// Panics if [`Volume::sector`] does not allow `sector`, if it does not divide `size`, or if
    /// `size` exceeds the maximum size of a file.
    pub fn new(size: u64, sector: u32) -> Self {
        assert!(
            sector.is_power_of_two() && (512..=65536).contains(&sector),
            "invalid sector size of {sector} bytes"
        );
        check_size(size, sector);
        let shared = MemoryVolumeState {
            size: Cell::new(size),
            sector,
            read_only: Cell::new(false),
            chunks: RefCell::default(),
            faults: MemoryFaults::default(),
            counters: Cell::default(),
            withdrawn: Stop::default(),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Refuses writes from now on, or accepts them again.
    pub fn set_read_only(&self, read_only: bool) {
        self.shared.read_only.set(read_only);
    }

    /// Changes the size. Data beyond a smaller size is lost.
    ///
    /// # Panics
    /// Panics if the sector size does not divide `size`, or if `size` exceeds the maximum size of a
    /// file.
    pub fn resize(&self, size: u64) {
        check_size(size, self.shared.sector);
        self.shared.chunks.borrow_mut().zero(size, u64::MAX - size);
        self.shared.size.set(size);
    }

    /// Signals the volume's users to stop. The volume continues to work.
    pub fn withdraw(&self) {
        self.shared.withdrawn.raise();
    }

    /// Returns the fault hooks.
    pub fn faults(&self) -> &MemoryFaults {
        &self.shared.faults
    }

    /// Returns the operation counters.
    pub fn counters(&self) -> MemoryCounters {
        self.shared.counters.get()
    }

    fn count(&self, step: impl FnOnce(&mut MemoryCounters)) {
        let mut counters = self.shared.counters.get();
        step(&mut counters);
        self.shared.counters.set(counters);
    }

    fn check(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let (size, sector) = (self.size(), u64::from(self.shared.sector));
        if !offset.is_multiple_of(sector) || !length.is_multiple_of(sector) {
            let message =
                format!("{length} bytes at offset {offset} are not whole sectors of {sector} bytes");
            return Err(VolumeError::new(VolumeErrorKind::Invalid, message));
        }
        if offset.checked_add(length).is_none_or(|end| end > size) {
            let message =
                format!("{length} bytes at offset {offset} exceed the volume's size of {size} bytes");
            return Err(VolumeError::new(VolumeErrorKind::Invalid, message));
        }
        Ok(())
    }

    fn check_change(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        if self.read_only() {
            return Err(VolumeError::new(VolumeErrorKind::ReadOnly, "the volume is read-only"));
        }
        self.check(offset, length)
    }
}

fn check_size(size: u64, sector: u32) {
    assert!(size.is_multiple_of(u64::from(sector)), "{size} bytes are not a whole number of sectors");
    assert!(i64::try_from(size).is_ok(), "{size} bytes exceed the maximum size of a disk");
}

impl Volume for MemoryVolume {
    fn size(&self) -> u64 {
        self.shared.size.get()
    }

    fn sector(&self) -> u32 {
        self.shared.sector
    }

    fn read_only(&self) -> bool {
        self.shared.read_only.get()
    }

    fn may_defer(&self) -> bool {
        self.shared.faults.defers()
    }

    async fn read_unless(
        &self,
        offset: u64,
        into: &Span,
        abort: impl Future<Output = ()>,
    ) -> Result<Execution, VolumeError> {
        match self.shared.faults.begins_unless(abort).await {
            true => self.read(offset, into).await.map(|()| Execution::Completed),
            false => Ok(Execution::Aborted),
        }
    }

    async fn write_unless(
        &self,
        offset: u64,
        data: &Span,
        abort: impl Future<Output = ()>,
    ) -> Result<Execution, VolumeError> {
        match self.shared.faults.begins_unless(abort).await {
            true => self.write(offset, data).await.map(|()| Execution::Completed),
            false => Ok(Execution::Aborted),
        }
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        self.count(|counters| counters.reads += 1);
        self.shared.faults.before_read().await?;
        self.check(offset, into.len() as u64)?;
        self.shared.chunks.borrow().read(offset, into);
        Ok(())
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        self.count(|counters| counters.writes += 1);
        self.shared.faults.before_write_of(data).await?;
        self.check_change(offset, data.len() as u64)?;
        self.shared.chunks.borrow_mut().write(offset, data);
        Ok(())
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.count(|counters| counters.flushes += 1);
        self.shared.faults.before_flush().await
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.count(|counters| counters.discards += 1);
        self.shared.faults.before_write().await?;
        self.check_change(offset, length)?;
        self.shared.chunks.borrow_mut().zero(offset, length);
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.count(|counters| counters.zeroes += 1);
        self.shared.faults.before_write().await?;
        self.check_change(offset, length)?;
        self.shared.chunks.borrow_mut().zero(offset, length);
        Ok(())
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        self.count(|counters| counters.extents += 1);
        self.shared.faults.before_read().await?;
        self.check(offset, length)?;
        Ok(self.shared.chunks.borrow().extents(offset, length))
    }

    fn atomic_limits(&self) -> AtomicLimits {
        AtomicLimits { bytes: ATOMIC_MAX, boundary: None }
    }

    async fn compare_and_write(
        &self,
        offset: u64,
        expected: &Span,
        data: &Span,
    ) -> Result<Comparison, VolumeError> {
        self.count(|counters| counters.writes += 1);
        self.shared.faults.before_write().await?;
        self.check_change(offset, data.len() as u64)?;
        if expected.len() != data.len() || data.len() > ATOMIC_MAX as usize {
            let message = format!("{} bytes are not compared and written atomically", data.len());
            return Err(VolumeError::new(VolumeErrorKind::Invalid, message));
        }
        let stored = Buffer::new(data.len()).span();
        self.shared.chunks.borrow().read(offset, &stored);
        let differs = stored.peek(|stored| {
            expected
                .peek(|expected| stored.iter().zip(expected).position(|(stored, wanted)| stored != wanted))
        });
        if let Some(at) = differs {
            return Ok(Comparison::Differs { at: at as u64 });
        }
        self.shared.chunks.borrow_mut().write(offset, data);
        Ok(Comparison::Written)
    }

    async fn withdrawn(&self) {
        self.shared.withdrawn.raised().await;
    }
}

impl std::fmt::Debug for MemoryVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryVolume({} bytes)", self.size())
    }
}
