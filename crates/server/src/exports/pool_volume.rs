//! A volume of a pool as frontends open and use it.

use std::sync::Arc;

use engine::AttachedVolume;
use export::{AtomicLimits, Comparison, Execution, Extent, VolumeError, VolumeErrorKind, VolumeSource};
use format::limits::{BLOCK_BYTES, SLICE};
use reactor::{Remote, Span};

use super::io_counters::{ExportCounters, HandleCounters, IoKind};

/// A volume of a pool, for frontends. Usable from any thread.
pub(super) struct PoolVolume {
    pub(super) volume: engine::Volume,
    pub(super) counters: Arc<ExportCounters>,
}

impl VolumeSource for PoolVolume {
    type Volume = ReactorVolume;

    fn size(&self) -> u64 {
        self.volume.size()
    }

    fn sector(&self) -> u32 {
        self.volume.sector()
    }

    fn reactors(&self) -> Vec<Remote> {
        self.volume.reactors()
    }

    fn identity(&self) -> [u8; 16] {
        // The pool's random id, combined with the id of the volume within the pool.
        let uid = u128::from(self.volume.uid().get());
        let mut identity = (u128::from_le_bytes(self.volume.pool().id().0) ^ uid.swap_bytes()).to_le_bytes();
        // The version and the variant of a UUID with contents of its own (RFC 9562, version 8).
        for (at, keep, set) in [(6, 0x0f, 0x80), (8, 0x3f, 0x80)] {
            if let Some(byte) = identity.get_mut(at) {
                *byte = *byte & keep | set;
            }
        }
        identity
    }

    fn open(&self) -> ReactorVolume {
        ReactorVolume::new(&self.volume, &self.counters)
    }
}

/// A volume of a pool as one reactor uses it.
pub(crate) struct ReactorVolume {
    attached: AttachedVolume,
    read_only: bool,
    atomic: AtomicLimits,
    counters: Arc<HandleCounters>,
}

impl ReactorVolume {
    /// Attaches a volume to this thread's reactor.
    pub(crate) fn new(volume: &engine::Volume, counters: &ExportCounters) -> Self {
        Self {
            attached: volume.attach(),
            read_only: volume.is_snapshot(),
            atomic: atomic_limits(volume),
            counters: counters.attach(),
        }
    }
}

/// The limits of atomic writes to a volume of a pool. A write that is not aligned to blocks covers
/// up to one block more than its length.
fn atomic_limits(volume: &engine::Volume) -> AtomicLimits {
    let (max, sector) = (volume.pool().atomic_write_bytes(), u64::from(volume.sector()));
    let aligned_only = sector >= BLOCK_BYTES;
    let bytes = if aligned_only { max } else { max.saturating_sub(BLOCK_BYTES).max(sector) };
    AtomicLimits { bytes: u32::try_from(bytes).unwrap_or(u32::MAX), boundary: Some(SLICE) }
}

impl export::Volume for ReactorVolume {
    fn size(&self) -> u64 {
        self.attached.size()
    }

    fn sector(&self) -> u32 {
        self.attached.sector()
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn prefetch_hint(&self, offset: u64) {
        self.attached.prefetch_entry(offset);
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        let started = self.counters.begin(IoKind::Read);
        let result = self.attached.read(offset, into).await;
        started.end(into.len() as u64, result.is_ok());
        result.map_err(convert)
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        let started = self.counters.begin(IoKind::Write);
        let result = self.attached.write(offset, data).await;
        started.end(data.len() as u64, result.is_ok());
        result.map_err(convert)
    }

    fn may_defer(&self) -> bool {
        self.attached.is_rate_limited()
    }

    async fn read_unless(
        &self,
        offset: u64,
        into: &Span,
        abort: impl Future<Output = ()>,
    ) -> Result<Execution, VolumeError> {
        let started = self.counters.begin(IoKind::Read);
        let result = self.attached.read_unless(offset, into, Box::pin(abort)).await;
        started.end(done_bytes(&result, into), result.is_ok());
        result.map(execution).map_err(convert)
    }

    async fn write_unless(
        &self,
        offset: u64,
        data: &Span,
        abort: impl Future<Output = ()>,
    ) -> Result<Execution, VolumeError> {
        let started = self.counters.begin(IoKind::Write);
        let result = self.attached.write_unless(offset, data, Box::pin(abort)).await;
        started.end(done_bytes(&result, data), result.is_ok());
        result.map(execution).map_err(convert)
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        let started = self.counters.begin(IoKind::Flush);
        let result = self.attached.flush().await;
        started.end(0, result.is_ok());
        result.map_err(convert)
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let started = self.counters.begin(IoKind::Discard);
        let result = self.attached.discard(offset, length).await;
        started.end(length, result.is_ok());
        result.map_err(convert)
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        let started = self.counters.begin(IoKind::Discard);
        let result = self.attached.write_zeroes(offset, length).await;
        started.end(length, result.is_ok());
        result.map_err(convert)
    }

    fn atomic_limits(&self) -> AtomicLimits {
        self.atomic
    }

    async fn compare_and_write(
        &self,
        offset: u64,
        expected: &Span,
        data: &Span,
    ) -> Result<Comparison, VolumeError> {
        let started = self.counters.begin(IoKind::Write);
        let result = self.attached.compare_and_write(offset, expected, data).await;
        started.end(data.len() as u64, result.is_ok());
        Ok(match result.map_err(convert)? {
            engine::Comparison::Written => Comparison::Written,
            engine::Comparison::Differs { at } => Comparison::Differs { at: at - offset },
        })
    }

    async fn copy_from(&self, source: &Self, from: u64, offset: u64, length: u64) -> Result<(), VolumeError> {
        let started = self.counters.begin(IoKind::Write);
        let result = self.attached.copy_from(&source.attached, from, offset, length).await;
        started.end(length, result.is_ok());
        result.map_err(convert)
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        let extents = self.attached.extents(offset, length).await.map_err(convert)?;
        Ok(extents.into_iter().map(|extent| Extent { length: extent.length, data: extent.data }).collect())
    }
}

/// The bytes that an operation has transferred.
fn done_bytes(result: &engine::Result<engine::Execution>, data: &Span) -> u64 {
    match result {
        Ok(engine::Execution::Aborted) => 0,
        _ => data.len() as u64,
    }
}

fn execution(execution: engine::Execution) -> Execution {
    match execution {
        engine::Execution::Completed => Execution::Completed,
        engine::Execution::Aborted => Execution::Aborted,
    }
}

fn convert(error: engine::Error) -> VolumeError {
    use engine::ErrorKind as Engine;
    let kind = match error.kind() {
        Engine::NoSpace => VolumeErrorKind::NoSpace,
        Engine::Invalid => VolumeErrorKind::Invalid,
        Engine::ReadOnly => VolumeErrorKind::ReadOnly,
        Engine::Closed | Engine::NotFound => VolumeErrorKind::Closed,
        Engine::Io
        | Engine::Corrupt
        | Engine::PoolFailed
        | Engine::Exists
        | Engine::Busy
        | Engine::NotAPool
        | Engine::Stale
        | Engine::Version => VolumeErrorKind::Io,
    };
    VolumeError::new(kind, error.to_string())
}

#[cfg(test)]
#[path = "pool_volume_tests.rs"]
mod tests;
