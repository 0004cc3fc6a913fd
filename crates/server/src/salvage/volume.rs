//! The volume interface of exports for a volume of a pool under salvage.

use engine::{SalvageState, SalvageVolume};
use export::{Extent, VolumeError, VolumeErrorKind};
use reactor::Span;

/// A read-only volume. Unreadable ranges are reported as data, so that a client reads them and gets
/// an error instead of zeros.
pub(super) struct ReadOnlyVolume {
    volume: SalvageVolume,
    size: u64,
    sector: u32,
}

impl ReadOnlyVolume {
    pub(super) fn new(volume: SalvageVolume) -> Self {
        let info = volume.info();
        Self { volume, size: info.size, sector: info.sector }
    }
}

impl export::Volume for ReadOnlyVolume {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector(&self) -> u32 {
        self.sector
    }

    fn read_only(&self) -> bool {
        true
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        self.volume.read(offset, into).await.map_err(translate)
    }

    async fn write(&self, _: u64, _: &Span) -> Result<(), VolumeError> {
        Err(read_only())
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    async fn discard(&self, _: u64, _: u64) -> Result<(), VolumeError> {
        Err(read_only())
    }

    async fn write_zeroes(&self, _: u64, _: u64) -> Result<(), VolumeError> {
        Err(read_only())
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        let extents = self.volume.extents(offset, length).await.map_err(translate)?;
        let extent = |extent: engine::SalvageExtent| {
            let data = extent.state != SalvageState::Hole || extent.stale;
            Extent { length: extent.length, data }
        };
        Ok(extents.into_iter().map(extent).collect())
    }
}

fn read_only() -> VolumeError {
    VolumeError::new(VolumeErrorKind::ReadOnly, "a pool under salvage is read-only")
}

fn translate(error: engine::Error) -> VolumeError {
    let kind = match error.kind() {
        engine::ErrorKind::Invalid => VolumeErrorKind::Invalid,
        _ => VolumeErrorKind::Io,
    };
    VolumeError::new(kind, error.to_string())
}
