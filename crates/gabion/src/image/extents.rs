//! Where the data of an export or a file is, in pieces.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use export::Extent;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::nbd::Connection;
use super::progress::Counted;

/// The most bytes of a piece: it is moved by one request.
pub(super) const PIECE: u64 = 1 << 20;
/// Zeros of at least this many bytes, aligned, are left out.
pub(super) const BLOCK: usize = 4096;

/// What is copied, and who says where its data is.
pub(super) enum Source {
    /// An export, which is asked in stretches.
    Export { client: Connection, told: VecDeque<Extent> },
    /// A file, whose system knows its holes.
    File(File),
}

/// The pieces of a source that are not holes, from its beginning to its end.
pub(super) struct Pieces {
    source: Source,
    size: u64,
    /// All before this was given out or is holes.
    at: u64,
    /// Data reaches from `at` to here.
    data_end: u64,
    counted: Arc<Counted>,
}

impl Pieces {
    /// What has been given out, and the holes between, is counted as done.
    pub(super) fn new(source: Source, size: u64, counted: Arc<Counted>) -> Self {
        Self { source, size, at: 0, data_end: 0, counted }
    }

    /// The next piece.
    ///
    /// # Errors
    /// When the source cannot be asked.
    pub(super) async fn next(&mut self) -> io::Result<Option<Range<u64>>> {
        while self.at == self.data_end {
            if self.at == self.size {
                return Ok(None);
            }
            let data = match &mut self.source {
                Source::Export { client, told } => {
                    if told.is_empty() {
                        told.extend(client.extents(self.at).await?);
                    }
                    match told.pop_front() {
                        Some(extent) => {
                            let end = self.at.saturating_add(extent.length);
                            if extent.data { self.at..end } else { end..end }
                        }
                        None => self.size..self.size,
                    }
                }
                Source::File(file) => next_data(file, self.at)?.unwrap_or(self.size..self.size),
            };
            self.at = data.start.min(self.size);
            self.data_end = data.end.min(self.size);
            self.counted.done.store(self.at, Ordering::Relaxed);
        }
        let end = self.data_end.min((self.at / PIECE + 1) * PIECE);
        let piece = self.at..end;
        self.at = end;
        self.counted.done.store(self.at, Ordering::Relaxed);
        Ok(Some(piece))
    }
}

/// The first data of a file from `at` on.
fn next_data(file: &File, at: u64) -> io::Result<Option<Range<u64>>> {
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        // None up to the end.
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(start..seek(file, SeekFrom::Hole(start))?))
}

/// The stretches of some bytes that have blocks that are not all zeros.
pub(super) fn not_zero(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (index, block) in bytes.chunks(BLOCK).enumerate() {
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (start, end) = (index * BLOCK, index * BLOCK + block.len());
        match found.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => found.push(start..end),
        }
    }
    found
}
