//! A volume of a pool that is salvaged, as the export room wants one.

use engine::{SalvageState, SalvageVolume};
use export::{Extent, VolumeError, VolumeErrorKind};
use reactor::Span;

/// See the module. Ranges that cannot be read are data: reading them is an error, and nobody takes them for holes.
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
        let found = self.volume.extents(offset, length).await.map_err(translate)?;
        let extent = |extent: engine::SalvageExtent| {
            let data = extent.state != SalvageState::Hole || extent.stale;
            Extent { length: extent.length, data }
        };
        Ok(found.into_iter().map(extent).collect())
    }
}

fn read_only() -> VolumeError {
    VolumeError::new(VolumeErrorKind::ReadOnly, "a pool that is salvaged is read-only")
}

fn translate(error: engine::Error) -> VolumeError {
    let kind = match error.kind() {
        engine::ErrorKind::Invalid => VolumeErrorKind::Invalid,
        _ => VolumeErrorKind::Io,
    };
    VolumeError::new(kind, error.to_string())
}
