//! A volume of a pool as frontends open and use it.

use engine::AttachedVolume;
use export::{Extent, VolumeError, VolumeErrorKind, VolumeSource};
use reactor::{Remote, Span};

/// A volume of a pool, for frontends. Usable from any thread.
pub(super) struct PoolVolume(pub(super) engine::Volume);

impl VolumeSource for PoolVolume {
    type Volume = ReactorVolume;

    fn size(&self) -> u64 {
        self.0.size()
    }

    fn sector(&self) -> u32 {
        self.0.sector()
    }

    fn reactors(&self) -> Vec<Remote> {
        self.0.reactors()
    }

    fn open(&self) -> ReactorVolume {
        ReactorVolume { attached: self.0.attach(), read_only: self.0.is_snapshot() }
    }
}

/// A volume of a pool as one reactor uses it.
pub(super) struct ReactorVolume {
    attached: AttachedVolume,
    read_only: bool,
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

    fn expect(&self, offset: u64) {
        self.attached.prefetch_entry(offset);
    }

    fn prefetch_hint(&self, offset: u64) {
        self.attached.prefetch_hint(offset);
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        self.attached.read(offset, into).await.map_err(convert)
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        self.attached.write(offset, data).await.map_err(convert)
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.attached.flush().await.map_err(convert)
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.attached.discard(offset, length).await.map_err(convert)
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.attached.write_zeroes(offset, length).await.map_err(convert)
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        let extents = self.attached.extents(offset, length).await.map_err(convert)?;
        Ok(extents.into_iter().map(|extent| Extent { length: extent.length, data: extent.data }).collect())
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
