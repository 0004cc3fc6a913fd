//! An image of a cluster as frontends open and use it.

use std::sync::Arc;

use ceph::RbdImage;
use export::{Extent, VolumeError, VolumeErrorKind, VolumeSource};
use reactor::{Remote, Span};

use super::io_counters::{ExportCounters, HandleCounters, IoKind};
use crate::clusters::SECTOR;

/// The shortest answer about extents that the frontends accept, in bytes.
const EXTENTS_STEP: u64 = 1 << 30;

/// An image of a cluster, for frontends. Usable from any thread.
pub(super) struct RbdSource {
    pub(super) image: Arc<RbdImage>,
    /// The identity of the cluster and of the image or snapshot, as text.
    pub(super) identity: String,
    pub(super) counters: Arc<ExportCounters>,
}

impl VolumeSource for RbdSource {
    type Volume = RbdVolume;

    fn size(&self) -> u64 {
        self.image.size()
    }

    fn sector(&self) -> u32 {
        SECTOR
    }

    fn reactors(&self) -> Vec<Remote> {
        Vec::new()
    }

    fn identity(&self) -> [u8; 16] {
        let digest = ring::digest::digest(&ring::digest::SHA256, self.identity.as_bytes());
        let mut identity = [0; 16];
        identity.iter_mut().zip(digest.as_ref()).for_each(|(byte, from)| *byte = *from);
        // The version and the variant of a UUID with contents of its own (RFC 9562, version 8).
        for (at, keep, set) in [(6, 0x0f, 0x80), (8, 0x3f, 0x80)] {
            if let Some(byte) = identity.get_mut(at) {
                *byte = *byte & keep | set;
            }
        }
        identity
    }

    fn open(&self) -> RbdVolume {
        RbdVolume { image: self.image.clone(), counters: self.counters.attach() }
    }
}

/// An image of a cluster as one reactor uses it.
pub(super) struct RbdVolume {
    image: Arc<RbdImage>,
    counters: Arc<HandleCounters>,
}

impl RbdVolume {
    async fn counted(
        &self,
        kind: IoKind,
        bytes: u64,
        operation: impl Future<Output = ceph::Result<()>>,
    ) -> Result<(), VolumeError> {
        let started = self.counters.begin(kind);
        let result = operation.await;
        started.end(bytes, result.is_ok());
        result.map_err(convert)
    }
}

impl export::Volume for RbdVolume {
    fn size(&self) -> u64 {
        self.image.size()
    }

    fn sector(&self) -> u32 {
        SECTOR
    }

    fn read_only(&self) -> bool {
        self.image.read_only()
    }

    async fn read(&self, offset: u64, into: &Span) -> Result<(), VolumeError> {
        self.counted(IoKind::Read, into.len() as u64, self.image.read(offset, into)).await
    }

    async fn write(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        self.counted(IoKind::Write, data.len() as u64, self.image.write(offset, data)).await
    }

    async fn flush(&self) -> Result<(), VolumeError> {
        self.counted(IoKind::Flush, 0, self.image.flush()).await
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.counted(IoKind::Discard, length, self.image.discard(offset, length)).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.counted(IoKind::Discard, length, self.image.write_zeroes(offset, length)).await
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, VolumeError> {
        let length = length.min(EXTENTS_STEP);
        let image = self.image.clone();
        let (answer, receive) = futures_channel::oneshot::channel();
        // The library compares states of an image in a blocking call.
        let compare = move || drop(answer.send(image.diff(None, offset, length, true)));
        let spawned = std::thread::Builder::new().name("rbd-extents".into()).spawn(compare);
        spawned.map_err(|error| {
            VolumeError::new(VolumeErrorKind::Io, format!("cannot start a thread: {error}"))
        })?;
        let gone = |_| VolumeError::new(VolumeErrorKind::Io, "the thread of the comparison ended");
        let ranges = receive.await.map_err(gone)?.map_err(convert)?;
        Ok(to_extents(&ranges, offset, length))
    }
}

/// Returns the extents of a range from the parts of it, in order, that hold data.
fn to_extents(ranges: &[ceph::ImageDiff], offset: u64, length: u64) -> Vec<Extent> {
    let (mut extents, mut at, end) = (Vec::new(), offset, offset.saturating_add(length));
    for range in ranges.iter().filter(|range| range.data) {
        let start = range.offset.clamp(at, end);
        let stop = range.offset.saturating_add(range.length).clamp(at, end);
        if start > at {
            extents.push(Extent { length: start - at, data: false });
        }
        if stop > start {
            extents.push(Extent { length: stop - start, data: true });
        }
        at = stop;
    }
    if end > at {
        extents.push(Extent { length: end - at, data: false });
    }
    extents
}

fn convert(error: ceph::Error) -> VolumeError {
    use ceph::ErrorKind as Ceph;
    let kind = match error.kind() {
        Ceph::NoSpace => VolumeErrorKind::NoSpace,
        Ceph::Invalid => VolumeErrorKind::Invalid,
        Ceph::ReadOnly => VolumeErrorKind::ReadOnly,
        Ceph::NotFound => VolumeErrorKind::Closed,
        Ceph::Exists | Ceph::Busy | Ceph::Unsafe | Ceph::Unreachable | Ceph::Io => VolumeErrorKind::Io,
    };
    VolumeError::new(kind, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_fill_the_range_exactly() {
        let data = |offset, length| ceph::ImageDiff { offset, length, data: true };
        let zeros = |offset, length| ceph::ImageDiff { offset, length, data: false };
        let extents = |ranges: &[_], offset, length| {
            let extents = to_extents(ranges, offset, length);
            extents.into_iter().map(|Extent { length, data }| (length, data)).collect::<Vec<_>>()
        };
        assert_eq!(extents(&[], 10, 90), [(90, false)]);
        assert_eq!(extents(&[data(0, 20)], 10, 90), [(10, true), (80, false)]);
        assert_eq!(
            extents(&[data(20, 10), zeros(30, 10), data(95, 20)], 10, 90),
            [(10, false), (10, true), (65, false), (5, true)]
        );
        assert_eq!(extents(&[data(0, 200)], 10, 90), [(90, true)]);
    }
}
