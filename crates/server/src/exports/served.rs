//! A volume as frontends open and use it, wherever its data is: in a pool or a cluster.

use export::{AtomicLimits, Comparison, Execution, Extent, VolumeError, VolumeErrorKind, VolumeSource};
use reactor::{Remote, Span};

use super::pool_volume::{PoolVolume, ReactorVolume};
use super::rbd_volume::{RbdSource, RbdVolume};

/// A volume, for frontends. Usable from any thread.
pub(super) enum ServedSource {
    /// Of a pool.
    Pool(PoolVolume),
    /// Of a cluster.
    Cluster(RbdSource),
}

/// A volume as one reactor uses it.
pub(super) enum ServedVolume {
    Pool(ReactorVolume),
    Cluster(RbdVolume),
}

impl VolumeSource for ServedSource {
    type Volume = ServedVolume;

    fn size(&self) -> u64 {
        match self {
            Self::Pool(source) => source.size(),
            Self::Cluster(source) => source.size(),
        }
    }

    fn sector(&self) -> u32 {
        match self {
            Self::Pool(source) => source.sector(),
            Self::Cluster(source) => source.sector(),
        }
    }

    fn reactors(&self) -> Vec<Remote> {
        match self {
            Self::Pool(source) => source.reactors(),
            Self::Cluster(source) => source.reactors(),
        }
    }

    fn identity(&self) -> [u8; 16] {
        match self {
            Self::Pool(source) => source.identity(),
            Self::Cluster(source) => source.identity(),
        }
    }

    fn open(&self) -> ServedVolume {
        match self {
            Self::Pool(source) => ServedVolume::Pool(source.open()),
            Self::Cluster(source) => ServedVolume::Cluster(source.open()),
        }
    }
}

/// Calls a method of the volume, of either kind.
macro_rules! on_volume {
    ($self:ident, $volume:ident => $call:expr) => {
        match $self {
            ServedVolume::Pool($volume) => $call,
            ServedVolume::Cluster($volume) => $call,
        }
    };
}

impl export::Volume for ServedVolume {
    fn size(&self) -> u64 {
        on_volume!(self, volume => volume.size())
    }

    fn sector(&self) -> u32 {
        on_volume!(self, volume => volume.sector())
    }

    fn read_only(&self) -> bool {
        on_volume!(self, volume => volume.read_only())
    }

    fn prefetch_hint(&self, offset: u64) {
        on_volume!(self, volume => volume.prefetch_hint(offset));
    }

    fn atomic_limits(&self) -> AtomicLimits {
        on_volume!(self, volume => volume.atomic_limits())
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        on_volume!(self, volume => volume.read(offset, into).await)
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        on_volume!(self, volume => volume.write(offset, data).await)
    }

    fn may_defer(&self) -> bool {
        on_volume!(self, volume => volume.may_defer())
    }

    async fn read_unless(
        &self,
        offset: u64,
        into: &Span,
        abort: impl Future<Output = ()>,
    ) -> Result<Execution, VolumeError> {
        on_volume!(self, volume => volume.read_unless(offset, into, abort).await)
    }

    async fn write_unless(
        &self,
        offset: u64,
        data: &Span,
        abort: impl Future<Output = ()>,
    ) -> Result<Execution, VolumeError> {
        on_volume!(self, volume => volume.write_unless(offset, data, abort).await)
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        on_volume!(self, volume => volume.flush().await)
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        on_volume!(self, volume => volume.discard(offset, length).await)
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        on_volume!(self, volume => volume.write_zeroes(offset, length).await)
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        on_volume!(self, volume => volume.extents(offset, length).await)
    }

    async fn compare_and_write(
        &self,
        offset: u64,
        expected: &Span,
        data: &Span,
    ) -> Result<Comparison, VolumeError> {
        on_volume!(self, volume => volume.compare_and_write(offset, expected, data).await)
    }

    async fn copy_from(&self, source: &Self, from: u64, offset: u64, length: u64) -> Result<(), VolumeError> {
        match (self, source) {
            (Self::Pool(target), Self::Pool(source)) => target.copy_from(source, from, offset, length).await,
            (Self::Cluster(target), Self::Cluster(source)) => {
                target.copy_from(source, from, offset, length).await
            }
            _ => Err(VolumeError::new(VolumeErrorKind::Invalid, "the handles are of different volumes")),
        }
    }
}
