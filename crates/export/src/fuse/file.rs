//! A volume as a file: bytes from anywhere to anywhere, of which the volume itself knows whole sectors only.
//!
//! Always true: bytes that a request does not name keep their values, whatever others write beside them at the same time.
//! Must not know who reads and writes.

use std::ops::Range;

use reactor::{Buffer, Span};

use super::limits::ZERO_STEP;
use super::turns::Turns;
use crate::{Volume, VolumeError, VolumeErrorKind};

/// See the module. Belongs to one reactor.
pub struct File<V> {
    volume: V,
    turns: Turns,
}

/// What is looked for in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sought {
    Data,
    Hole,
}

/// Bytes that were read, in the memory that they were read into.
pub(super) struct Content {
    buffer: Buffer,
    within: Range<usize>,
}

impl Content {
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.as_slice().get(self.within.clone()).unwrap_or_default()
    }
}

impl<V: Volume> File<V> {
    /// The file of this volume.
    pub fn new(volume: V) -> Self {
        Self { volume, turns: Turns::default() }
    }

    /// Bytes, now.
    pub(super) fn size(&self) -> u64 {
        self.volume.size()
    }

    fn sector(&self) -> u64 {
        self.volume.sector().into()
    }

    /// Up to `len` bytes from `offset` on: fewer at the end.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn read(&self, offset: u64, len: u32) -> Result<Content, VolumeError> {
        let end = offset.saturating_add(len.into()).min(self.size());
        if offset >= end {
            return Ok(Content { buffer: Buffer::new(0), within: 0..0 });
        }
        let from = offset - offset % self.sector();
        let buffer = Buffer::new(length(end.next_multiple_of(self.sector()) - from)?);
        self.volume.read(from, &buffer.span()).await?;
        Ok(Content { buffer, within: length(offset - from)?..length(end - from)? })
    }

    /// Writes `data` from `offset` on, as much of it as lies within the file. Gives how many bytes that are.
    ///
    /// # Errors
    /// Those of the volume; `NoSpace` behind its end.
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
            let _turn = self.turns.beside().await;
            self.volume.write(offset, &data).await?;
        } else {
            self.write_parts(offset, &data).await?;
        }
        Ok(data.len())
    }

    /// Writes into sectors that keep some of their bytes.
    async fn write_parts(&self, offset: u64, data: &Span) -> Result<(), VolumeError> {
        let _turn = self.turns.alone().await;
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

    /// Makes everything durable that was answered before.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn flush(&self) -> Result<(), VolumeError> {
        self.volume.flush().await
    }

    /// Makes a range read as zeros and gives its space back, as far as it lies within the file.
    ///
    /// # Errors
    /// Those of the volume.
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
        let _turn = self.turns.beside().await;
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

    /// The first place from `offset` on where there is data, or none. Behind the last data there is a hole, if only at
    /// the end of the file; `None` is behind the end, or where no data follows.
    ///
    /// # Errors
    /// Those of the volume.
    pub(super) async fn seek(&self, offset: u64, sought: Sought) -> Result<Option<u64>, VolumeError> {
        let size = self.size();
        if offset >= size {
            return Ok(None);
        }
        let mut next = offset - offset % self.sector();
        while next < size {
            let extents = self.volume.extents(next, size - next).await?;
            assert!(!extents.is_empty(), "a volume tells something of what it has");
            for extent in extents {
                if extent.data == (sought == Sought::Data) {
                    return Ok(Some(next.max(offset)));
                }
                next += extent.length;
            }
        }
        Ok((sought == Sought::Hole).then_some(size))
    }
}

/// A number of bytes in memory.
fn length(bytes: u64) -> Result<usize, VolumeError> {
    let too_long =
        |_| VolumeError::new(VolumeErrorKind::Invalid, "more bytes than this machine's memory has");
    usize::try_from(bytes).map_err(too_long)
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
