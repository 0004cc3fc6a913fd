//! A volume as a file: reads and writes of any bytes, over a volume that has sectors.
//!
//! Always true: bytes outside of a request keep their values, also with concurrent writes to the
//! same sectors. Must not know its users.

use std::ops::Range;

use reactor::{Buffer, Span};

use super::limits::ZERO_STEP;
use super::sector_lock::SectorLock;
use crate::{Volume, VolumeError, VolumeErrorKind};

/// A volume as a file. Lives on one reactor.
pub struct VolumeFile<V> {
    volume: V,
    sectors: SectorLock,
}

/// The target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeekTarget {
    Data,
    Hole,
}

/// Data that was read, in its buffer.
pub(super) struct ReadData {
    buffer: Buffer,
    within: Range<usize>,
}

impl ReadData {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_slice().get(self.within.clone()).unwrap_or_default()
    }
}

impl<V: Volume> VolumeFile<V> {
    /// Creates the file of a volume.
    pub fn new(volume: V) -> Self {
        Self { volume, sectors: SectorLock::default() }
    }

    /// Returns the current size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.volume.size()
    }

    fn sector(&self) -> u64 {
        self.volume.sector().into()
    }

    /// Reads up to `len` bytes from `offset` on; fewer at the end.
    ///
    /// # Errors
    /// Errors of the volume.
    pub(super) async fn read(&self, offset: u64, len: u32) -> Result<ReadData, VolumeError> {
        let end = offset.saturating_add(len.into()).min(self.size());
        if offset >= end {
            return Ok(ReadData { buffer: Buffer::new(0), within: 0..0 });
        }
        let from = offset - offset % self.sector();
        let buffer = Buffer::new(length(end.next_multiple_of(self.sector()) - from)?);
        self.volume.read(from, &buffer.span()).await?;
        Ok(ReadData { buffer, within: length(offset - from)?..length(end - from)? })
    }

    /// Writes the part of `data` from `offset` on that lies within the file. Returns its length.
    ///
    /// # Errors
    /// Errors of the volume; `NoSpace` at or after its end.
    pub(super) async fn write(&self, offset: u64, data: &Span) -> Result<usize, VolumeError> {
        let room = length(self.size().saturating_sub(offset)).unwrap_or(usize::MAX);
        if room == 0 {
            let message = format!("the file ends at {}: it is as large as its volume", self.size());
            return Err(VolumeError::new(VolumeErrorKind::NoSpace, message));
        }
        let data = data.slice(0..data.len().min(room));
        if data.is_empty() {
            return Ok(0);
        }
        let whole = offset.is_multiple_of(self.sector()) && (data.len() as u64).is_multiple_of(self.sector());
        if whole {
            let _guard = self.sectors.shared().await;
            self.volume.write(offset, &data).await?;
        } else {
            self.write_parts(offset, &data).await?;
        }
        Ok(data.len())
    }

    /// Writes into sectors that keep some of their bytes (read-modify-write).
    async fn write_parts(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        let _guard = self.sectors.exclusive().await;
        let sector = self.sector();
        let from = offset - offset % sector;
        let end = offset + data.len() as u64;
        let whole = Buffer::new(length(end.next_multiple_of(sector) - from)?);
        let (into, sector_len) = (whole.span(), length(sector)?);
        let (start, last) = (length(offset - from)?, into.len() - sector_len);
        if start > 0 {
            self.volume.read(from, &into.slice(0..sector_len)).await?;
        }
        let is_read = start > 0 && last == 0;
        if !end.is_multiple_of(sector) && !is_read {
            self.volume.read(from + last as u64, &into.slice(last..into.len())).await?;
        }
        into.slice(start..start + data.len()).copy_from_span(data);
        self.volume.write(from, &into).await
    }

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// Errors of the volume.
    pub(super) async fn flush(&self) -> Result<(), VolumeError> {
        self.volume.flush().await
    }

    /// Zeroes the part of a range that lies within the file, and frees its space.
    ///
    /// # Errors
    /// Errors of the volume.
    pub(super) async fn zero(&self, offset: u64, len: u64) -> Result<(), VolumeError> {
        let (sector, end) = (self.sector(), offset.saturating_add(len).min(self.size()));
        if offset >= end {
            return Ok(());
        }
        let (first, last) = (offset.next_multiple_of(sector), end - end % sector);
        if first >= last {
            return self.write_zeros(offset, end).await;
        }
        self.write_zeros(offset, first).await?;
        self.zero_sectors(first, last).await?;
        self.write_zeros(last, end).await
    }

    async fn zero_sectors(&self, first: u64, last: u64) -> Result<(), VolumeError> {
        let _guard = self.sectors.shared().await;
        let mut next = first;
        while next < last {
            let step = (last - next).min(ZERO_STEP);
            self.volume.write_zeroes(next, step).await?;
            next += step;
        }
        Ok(())
    }

    /// Writes zeros into less than two sectors.
    async fn write_zeros(&self, offset: u64, end: u64) -> Result<(), VolumeError> {
        if offset >= end {
            return Ok(());
        }
        let zeros = Buffer::zeroed(length(end - offset)?);
        self.write_parts(offset, &zeros.span()).await
    }

    /// Returns the first offset from `offset` on with data, or with a hole. The end of the file
    /// counts as a hole. Returns `None` after the end, or if no data follows.
    ///
    /// # Errors
    /// Errors of the volume.
    pub(super) async fn seek(&self, offset: u64, sought: SeekTarget) -> Result<Option<u64>, VolumeError> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        let mut next = offset - offset % self.sector();
        while next < size {
            let extents = self.volume.extents(next, size - next).await?;
            assert!(!extents.is_empty(), "a volume returns at least one extent");
            for extent in extents {
                if extent.data == (sought == SeekTarget::Data) {
                    return Ok(Some(next.max(offset)));
                }
                next += extent.length;
            }
        }
        Ok((sought == SeekTarget::Hole).then_some(size))
    }
}

/// Converts a number of bytes to a length in memory.
fn length(bytes: u64) -> Result<usize, VolumeError> {
    let too_long =
        |_| VolumeError::new(VolumeErrorKind::Invalid, "more bytes than this machine's memory has");
    usize::try_from(bytes).map_err(too_long)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
