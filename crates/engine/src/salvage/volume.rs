//! A volume or snapshot of a pool that is salvaged, to be read.

use std::rc::Rc;

use format::limits::BLOCK;
use reactor::{Buffer, Span};

use super::Salvage;
use super::catalogue::KnownVolume;
use super::survey::{VolumeSurvey, Walk, survey};
use crate::error::{Error, ErrorKind, Result};
use crate::shard::{BlockState, Probe};

/// Runs of blocks that one call of [`SalvageVolume::extents`] looks at, and the bytes that it covers at least.
const STEPS: u32 = 4096;
const TOLD_MIN: u64 = 64 << 20;

/// A volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvageVolumeInfo {
    /// Its name. If an older record of the catalogue has the same name, its number follows behind a `#`.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its sector size in bytes.
    pub sector: u32,
    /// True for a snapshot.
    pub snapshot: bool,
    /// Seconds since 1970 when it was created.
    pub created: u64,
    /// True if all of it may be older than the newest write: records of the log are lost, or its record may be an old one.
    pub stale: bool,
}

/// A volume or snapshot, on the reactor of its [`Salvage`].
pub struct SalvageVolume {
    salvage: Rc<Salvage>,
    index: usize,
}

/// The state of a stretch of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SalvageState {
    /// It reads as zeros.
    Hole,
    /// It holds data.
    Data,
    /// It cannot be read.
    Lost,
}

/// A stretch of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SalvageExtent {
    /// Bytes.
    pub length: u64,
    /// Its state. Damage that only a read shows is not in it.
    pub state: SalvageState,
    /// True if newer data may have been written there, or it may have been deleted since.
    pub stale: bool,
}

/// A range of a volume that cannot be read.
#[derive(Clone, Debug)]
pub struct UnreadableRange {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// The reason for its beginning, with the place.
    pub error: Error,
}

impl Salvage {
    pub(super) fn info(&self, volume: &KnownVolume) -> SalvageVolumeInfo {
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

    fn known(&self) -> &Rc<KnownVolume> {
        match self.salvage.catalogue.volumes.get(self.index) {
            Some(volume) => volume,
            None => panic!("volume {} of the catalogue does not exist", self.index),
        }
    }

    /// The volume's properties.
    pub fn info(&self) -> SalvageVolumeInfo {
        self.salvage.info(self.known())
    }

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `Invalid` beyond the end; `Corrupt` or `Io`, with the place, if a block of the range cannot be read; `Stale` if it may be older
    /// than the newest write and that was not accepted. Nothing is known of `into` then.
    pub async fn read(&self, offset: u64, into: &Span) -> Result<()> {
        match self.read_left(offset, into).await?.into_iter().next() {
            Some(range) => Err(range.error),
            None => Ok(()),
        }
    }

    /// Fills `into` with the bytes from `offset` on that can be read, and with zeros elsewhere. Gives the ranges that cannot be read, in
    /// order.
    ///
    /// # Errors
    /// `Invalid` beyond the end.
    pub async fn read_left(&self, offset: u64, into: &Span) -> Result<Vec<UnreadableRange>> {
        let length = into.len() as u64;
        self.check(offset, length)?;
        if self.known().stale && !self.salvage.accept_stale {
            into.zero();
            return Ok(vec![UnreadableRange { offset, length, error: self.stale_error() }]);
        }
        let start = offset - offset % BLOCK as u64;
        let end = (offset + length).next_multiple_of(BLOCK as u64);
        if start == offset && end == offset + length {
            return Ok(self.read_blocks(start, into).await);
        }
        let around = Buffer::new(index(end - start));
        let lost = self.read_blocks(start, &around.span()).await;
        let skip = index(offset - start);
        into.copy_from(0, around.as_slice().get(skip..skip + into.len()).unwrap_or(&[]));
        let clipped = lost.into_iter().filter_map(|range| {
            let (first, last) =
                (range.offset.max(offset), (range.offset + range.length).min(offset + length));
            (first < last).then_some(UnreadableRange { offset: first, length: last - first, ..range })
        });
        Ok(clipped.collect())
    }

    async fn read_blocks(&self, offset: u64, into: &Span) -> Vec<UnreadableRange> {
        let volume = self.known();
        let mut lost: Vec<UnreadableRange> = Vec::new();
        let (mut next, end) = (offset / BLOCK as u64, (offset + into.len() as u64) / BLOCK as u64);
        while next < end {
            let until = volume.slices.end_of_slice(next).min(end);
            let (shard, local) = volume.slices.place(next);
            let at = index(next * BLOCK as u64 - offset);
            let part = into.slice(at..at + index((until - next) * BLOCK as u64));
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

    /// The extents of a range, in order. Their lengths add up to `length`, or to less, but to 64 MiB at least, if there are many.
    ///
    /// # Errors
    /// `Invalid` beyond the end.
    pub async fn extents(&self, offset: u64, length: u64) -> Result<Vec<SalvageExtent>> {
        self.check(offset, length)?;
        let volume = self.known();
        let looks = self.looks(Probe::Drives);
        let (first, end) = (offset / BLOCK as u64, (offset + length).div_ceil(BLOCK as u64));
        let mut walk = Walk::new(&self.salvage.shards, volume, &looks, first, end);
        let mut extents: Vec<SalvageExtent> = Vec::new();
        let (mut told, mut steps) = (offset, 0);
        while (steps < STEPS || told - offset < TOLD_MIN)
            && let Some((block, run)) = walk.next().await
        {
            steps += 1;
            let until = ((block + run.blocks) * BLOCK as u64).min(offset + length);
            let state = match run.state {
                BlockState::Hole => SalvageState::Hole,
                BlockState::Data => SalvageState::Data,
                BlockState::Lost => SalvageState::Lost,
            };
            let stale = run.stale || volume.stale;
            match extents.last_mut() {
                Some(last) if last.state == state && last.stale == stale => last.length += until - told,
                _ => extents.push(SalvageExtent { length: until - told, state, stale }),
            }
            told = until;
        }
        Ok(extents)
    }

    /// Surveys the whole volume. With `read`, every block is read; otherwise a block counts as readable if enough of its row lies on
    /// drives that are present. `passed` is called with the number of bytes that were looked at since the last call.
    pub async fn survey(&self, read: bool, passed: impl FnMut(u64)) -> VolumeSurvey {
        let looks = self.looks(if read { Probe::Read } else { Probe::Drives });
        survey(&self.salvage.shards, self.known(), &looks.into(), passed).await
    }

    fn looks(&self, look: Probe) -> Vec<Probe> {
        vec![look; self.salvage.shards.len()]
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        let size = self.known().record.size;
        if offset.checked_add(length).is_some_and(|end| end <= size) {
            return Ok(());
        }
        let message = format!("{length} bytes at {offset} reach behind the end at {size}");
        Err(Error::new(ErrorKind::Invalid, message))
    }

    fn stale_error(&self) -> Error {
        let name = &self.known().name;
        let message = format!(
            "all of '{name}' may be older than the newest write: records of the pool's log are lost, or its own record is an old one; \
             it is read only if stale data is accepted"
        );
        Error::new(ErrorKind::Stale, message)
    }
}

#[allow(clippy::cast_possible_truncation)]
fn index(number: u64) -> usize {
    number as usize
}
