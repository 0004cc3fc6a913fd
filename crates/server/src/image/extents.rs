//! Data extents of a volume or a file, in chunks.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use engine::Extent;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::counters::CopyCounters;
use super::file_error;
use super::volume_io::VolumeIo;
use crate::error::Result;

/// Maximum size of a chunk in bytes; a chunk is copied by one request.
pub const CHUNK: u64 = 1 << 20;
/// Aligned zero blocks of this size are skipped.
pub const BLOCK: usize = 4096;

/// The source of a copy, which reports its data extents.
pub(super) enum Source {
    /// A volume, with reported extents that are not processed yet.
    Volume { volume: VolumeIo, pending: VecDeque<Extent> },
    /// A file, with SEEK_DATA and SEEK_HOLE.
    File { file: File, path: PathBuf },
}

/// Iterates over the data of a source in chunks, in ascending order.
pub(super) struct ChunkIter {
    source: Source,
    size: u64,
    /// Offset of the next chunk.
    at: u64,
    /// End of the data extent at `at`.
    data_end: u64,
    counters: Arc<CopyCounters>,
}

impl ChunkIter {
    /// Returns an iterator that counts returned chunks and skipped holes as done.
    pub(super) fn new(source: Source, size: u64, counters: Arc<CopyCounters>) -> Self {
        Self { source, size, at: 0, data_end: 0, counters }
    }

    /// Ends the iteration.
    pub(super) fn stop(&mut self) {
        (self.at, self.data_end) = (self.size, self.size);
    }

    /// Returns the next chunk.
    ///
    /// # Errors
    /// If the extents of the source cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<Range<u64>>> {
        while self.at == self.data_end {
            if self.at == self.size {
                return Ok(None);
            }
            let data = match &mut self.source {
                Source::Volume { volume, pending } => {
                    if pending.is_empty() {
                        pending.extend(volume.extents(self.at).await?);
                    }
                    match pending.pop_front() {
                        Some(extent) => {
                            let end = self.at.saturating_add(extent.length);
                            if extent.data { self.at..end } else { end..end }
                        }
                        None => self.size..self.size,
                    }
                }
                Source::File { file, path } => {
                    let next = next_data(file, self.at).map_err(|error| file_error(path, &error))?;
                    next.unwrap_or(self.size..self.size)
                }
            };
            self.at = data.start.min(self.size);
            self.data_end = data.end.min(self.size);
            self.counters.set_done(self.at);
        }
        let end = self.data_end.min((self.at / CHUNK + 1) * CHUNK);
        let chunk = self.at..end;
        self.at = end;
        self.counters.set_done(self.at);
        Ok(Some(chunk))
    }
}

/// Returns the first data extent of a file from `at` on.
fn next_data(file: &File, at: u64) -> std::io::Result<Option<Range<u64>>> {
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        // No data up to the end.
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(start..seek(file, SeekFrom::Hole(start))?))
}

/// Returns the ranges of blocks that are not all zeros.
pub fn nonzero_ranges(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (start, end) = (index * BLOCK, index * BLOCK + block.len());
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    ranges
}
