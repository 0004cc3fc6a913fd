//! A read-only volume or snapshot of a damaged pool.

use std::rc::Rc;

use format::limits::BLOCK;
use futures_util::future::LocalBoxFuture;
use reactor::{Buffer, Span};

use super::Salvage;
use super::catalogue::SalvageableVolume;
use super::survey::{RunCursor, VolumeSurvey, survey};
use crate::error::{Error, ErrorKind, Result};
use crate::invariant::{part, to_index};
use crate::shard::{BlockState, Probe};

/// Runs of blocks after which [`SalvageVolume::extents`] may return early.
const RUNS_MIN: u32 = 4096;
/// Bytes after which [`SalvageVolume::extents`] may return early.
const EXTENTS_BYTES_MIN: u64 = 64 << 20;

/// Properties of a volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvageVolumeInfo {
    /// The name, followed by `#` and the volume's number if an earlier record has the same name.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// The sector size in bytes.
    pub sector: u32,
    /// True for a snapshot.
    pub snapshot: bool,
    /// Time of creation, in seconds since 1970.
    pub created: u64,
    /// True if all data may be older than the newest write: records of the log are lost, or the
    /// volume's record may be out of date.
    pub stale: bool,
}

/// A volume or snapshot, on the reactor of its [`Salvage`].
pub struct SalvageVolume {
    salvage: Rc<Salvage>,
    index: usize,
}

/// The state of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SalvageState {
    /// Reads as zeros.
    Hole,
    /// Holds data.
    Data,
    /// Cannot be read.
    Lost,
}

/// A range of a volume in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvageExtent {
    /// The length in bytes.
    pub length: u64,
    /// The state. It does not reflect damage that is detected only by reading.
    pub state: SalvageState,
    /// True if the range may have been overwritten or deleted since.
    pub stale: bool,
}

/// A range of a volume that cannot be read.
#[derive(Clone, Debug)]
pub struct UnreadableRange {
    /// The first byte.
    pub offset: u64,
    /// The length in bytes.
    pub length: u64,
    /// The error of the first block, with its location.
    pub error: Error,
}

impl Salvage {
    pub(super) fn info(&self, volume: &SalvageableVolume) -> SalvageVolumeInfo {
        SalvageVolumeInfo {
            name: volume.name.clone(),
            size: volume.record.size,
            sector: volume.record.sector,
            snapshot: volume.is_snapshot(),
            created: volume.record.created,
            stale: volume.stale,
        }
    }
}

impl SalvageVolume {
    pub(super) fn new(salvage: Rc<Salvage>, index: usize) -> Self {
        Self { salvage, index }
    }

    fn volume(&self) -> &Rc<SalvageableVolume> {
        match self.salvage.catalogue.volumes.get(self.index) {
            Some(volume) => volume,
            None => panic!("volume {} of the catalogue does not exist", self.index),
        }
    }

    /// Returns the volume's properties.
    pub fn info(&self) -> SalvageVolumeInfo {
        self.salvage.info(self.volume())
    }

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `Invalid` beyond the end; `Corrupt` or `Io`, with the location, if a block of the range
    /// cannot be read; `Stale` if the data may be older than the newest write and stale data is not
    /// accepted. The contents of `into` are unspecified after an error.
    pub fn read<'a>(&'a self, offset: u64, into: &'a Span) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match self.read_available(offset, into).await?.into_iter().next() {
                Some(range) => Err(range.error),
                None => Ok(()),
            }
        })
    }

    /// Fills `into` with the readable bytes from `offset` on, and with zeros elsewhere. Returns the
    /// ranges that cannot be read, in order.
    ///
    /// # Errors
    /// `Invalid` beyond the end.
    pub fn read_available<'a>(
        &'a self,
        offset: u64,
        into: &'a Span,
    ) -> LocalBoxFuture<'a, Result<Vec<UnreadableRange>>> {
        Box::pin(async move {
            let length = into.len() as u64;
            self.check(offset, length)?;
            if self.volume().stale && !self.salvage.accept_stale {
                into.zero();
                return Ok(vec![UnreadableRange { offset, length, error: self.stale_error() }]);
            }
            let start = offset - offset % BLOCK as u64;
            let end = (offset + length).next_multiple_of(BLOCK as u64);
            if start == offset && end == offset + length {
                return Ok(self.read_blocks(start, into).await);
            }
            let around = Buffer::new(to_index(end - start));
            let lost = self.read_blocks(start, &around.span()).await;
            let skip = to_index(offset - start);
            into.copy_from(0, part(around.as_slice(), skip..skip + into.len(), "R1"));
            let clipped = lost.into_iter().filter_map(|range| {
                let (first, last) =
                    (range.offset.max(offset), (range.offset + range.length).min(offset + length));
                (first < last).then_some(UnreadableRange { offset: first, length: last - first, ..range })
            });
            Ok(clipped.collect())
        })
    }

    async fn read_blocks(&self, offset: u64, into: &Span) -> Vec<UnreadableRange> {
        let volume = self.volume();
        let mut lost: Vec<UnreadableRange> = Vec::new();
        let (mut next, end) = (offset / BLOCK as u64, (offset + into.len() as u64) / BLOCK as u64);
        while next < end {
            let until = volume.slices.end_of_slice(next).min(end);
            let (shard, local) = volume.slices.locate(next);
            let at = to_index(next * BLOCK as u64 - offset);
            let part = into.slice(at..at + to_index((until - next) * BLOCK as u64));
            let Some(shard) = self.salvage.shards.get(shard) else { break };
            for run in shard.read(&volume.chain, local, &part, self.salvage.accept_stale).await {
                let first = (next + run.block - local) * BLOCK as u64;
                let length = run.blocks * BLOCK as u64;
                match lost.last_mut() {
                    Some(last) if last.offset + last.length == first => last.length += length,
                    _ => lost.push(UnreadableRange { offset: first, length, error: run.error }),
                }
            }
            next = until;
        }
        lost
    }

    /// Returns the extents of a range, in order. Their lengths add up to `length`; if there are
    /// many, to less, but to at least 64 MiB.
    ///
    /// # Errors
    /// `Invalid` beyond the end.
    pub fn extents(&self, offset: u64, length: u64) -> LocalBoxFuture<'_, Result<Vec<SalvageExtent>>> {
        Box::pin(async move {
            self.check(offset, length)?;
            let volume = self.volume();
            let probes = self.probes(Probe::Drives);
            let (first, last) = (offset / BLOCK as u64, (offset + length).div_ceil(BLOCK as u64));
            let mut runs = RunCursor::new(&self.salvage.shards, volume, &probes, first, last);
            let mut extents: Vec<SalvageExtent> = Vec::new();
            let (mut end, mut count) = (offset, 0);
            while (count < RUNS_MIN || end - offset < EXTENTS_BYTES_MIN)
                && let Some((block, run)) = runs.next().await
            {
                count += 1;
                let until = ((block + run.blocks) * BLOCK as u64).min(offset + length);
                let state = match run.state {
                    BlockState::Hole => SalvageState::Hole,
                    BlockState::Data => SalvageState::Data,
                    BlockState::Lost => SalvageState::Lost,
                };
                let stale = run.stale || volume.stale;
                match extents.last_mut() {
                    Some(last) if last.state == state && last.stale == stale => last.length += until - end,
                    _ => extents.push(SalvageExtent { length: until - end, state, stale }),
                }
                end = until;
            }
            Ok(extents)
        })
    }

    /// Surveys the whole volume. With `read`, every block is read; otherwise a block counts as
    /// readable if enough cells of its row are on drives that are present. `progress` is called
    /// with the number of bytes surveyed since the last call.
    pub fn survey<'a>(
        &'a self,
        read: bool,
        progress: &'a mut dyn FnMut(u64),
    ) -> LocalBoxFuture<'a, VolumeSurvey> {
        Box::pin(async move {
            let probes = self.probes(if read { Probe::Read } else { Probe::Drives });
            survey(&self.salvage.shards, self.volume(), &probes.into(), progress).await
        })
    }

    fn probes(&self, probe: Probe) -> Vec<Probe> {
        vec![probe; self.salvage.shards.len()]
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        let size = self.volume().record.size;
        if offset.checked_add(length).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let message =
            format!("bytes {offset} to {offset}+{length} are beyond the end of the volume at {size}");
        Err(Error::new(ErrorKind::Invalid, message))
    }

    fn stale_error(&self) -> Error {
        let name = &self.volume().name;
        let message = format!(
            "all data of '{name}' may be older than the newest write, because log records or its catalogue record are lost; accept \
             stale data to read it"
        );
        Error::new(ErrorKind::Stale, message)
    }
}
