//! The device of a store: a range of bytes with blocking operations.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// The unit of a store's addresses, in bytes.
pub(crate) const BLOCK: u64 = 4096;

/// A read in progress.
pub type VolumeRead = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send + Sync>>;

/// A sparse volume with blocking operations, usable from any thread.
///
/// Bytes that were never written read as zeros. A write is durable after a later flush; without
/// one, a power cut may lose any block of it.
pub trait BlockVolume: Send + Sync + fmt::Debug + 'static {
    /// Returns the size in bytes.
    fn size(&self) -> u64;

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// When the data cannot be read, or the range is out of bounds.
    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Returns `length` bytes from `offset` on, in memory of the volume's choice: without a copy
    /// where the device fills it.
    ///
    /// # Errors
    /// As [`BlockVolume::read`].
    fn read_bytes(&self, offset: u64, length: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; length];
        self.read(offset, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Begins a read as [`BlockVolume::read_bytes`], without blocking. `None` if only a thread that
    /// may block can read the range.
    fn begin_read(&self, offset: u64, length: usize) -> Option<VolumeRead> {
        let _ = (offset, length);
        None
    }

    /// Writes `data` at `offset`. Offset and length are multiples of 512 bytes.
    ///
    /// # Errors
    /// `StorageFull` in a full pool; when the data cannot be stored.
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()>;

    /// Writes `data` at `offset`, as [`BlockVolume::write`], without a copy where the device reads
    /// it in place.
    ///
    /// # Errors
    /// As [`BlockVolume::write`].
    fn write_bytes(&self, offset: u64, data: Bytes) -> io::Result<()> {
        self.write(offset, &data)
    }

    /// Writes several ranges, in any order and possibly at the same time.
    ///
    /// # Errors
    /// As [`BlockVolume::write`]; some of the ranges may have been written.
    fn write_many(&self, writes: Vec<(u64, Vec<u8>)>) -> io::Result<()> {
        writes.iter().try_for_each(|(offset, data)| self.write(*offset, data))
    }

    /// Makes every write and discard durable that completed before the call.
    ///
    /// # Errors
    /// When writes may be lost.
    fn flush(&self) -> io::Result<()>;

    /// Frees the space of a range of whole blocks. It reads as zeros; before a flush, a power cut
    /// may bring its old data back.
    ///
    /// # Errors
    /// When the volume failed.
    fn discard(&self, offset: u64, length: u64) -> io::Result<()>;
}

/// A volume in memory, which keeps written blocks only. It survives its store, like a device.
pub struct MemoryBlocks {
    size: u64,
    blocks: Mutex<std::collections::BTreeMap<u64, Box<[u8]>>>,
}

impl fmt::Debug for MemoryBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBlocks").field("size", &self.size).finish_non_exhaustive()
    }
}

impl MemoryBlocks {
    /// Returns an empty volume of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self { size, blocks: Mutex::default() }
    }

    /// Returns the number of bytes that hold data.
    pub fn stored_bytes(&self) -> u64 {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner).len() as u64 * BLOCK
    }

    /// Returns a volume with the same data.
    #[cfg(test)]
    pub(crate) fn copy(&self) -> Self {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        Self { size: self.size, blocks: Mutex::new(blocks.clone()) }
    }

    /// Returns the numbers of the blocks in a range that hold data.
    #[cfg(test)]
    pub(crate) fn stored_blocks(&self, range: std::ops::Range<u64>) -> Vec<u64> {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        blocks.range(range).map(|(block, _)| *block).collect()
    }

    /// Returns the number of bytes from `offset` on that are not zero.
    #[cfg(test)]
    pub(crate) fn nonzero_from(&self, offset: u64) -> usize {
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = blocks.range(offset / BLOCK..).flat_map(|(_, bytes)| bytes.iter());
        bytes.filter(|byte| **byte != 0).count()
    }

    fn check(&self, offset: u64, length: u64) -> io::Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "beyond the end of the volume")),
        }
    }
}

/// Splits a byte range at block bounds: calls `visit` with the block, the offset in it, and the
/// range within the data.
pub(crate) fn each_block(
    offset: u64,
    length: usize,
    mut visit: impl FnMut(u64, usize, std::ops::Range<usize>),
) {
    let mut done = 0;
    while done < length {
        let at = offset + done as u64;
        // Less than a block.
        let within = usize::try_from(at % BLOCK).unwrap_or(0);
        let count = (length - done).min(usize::try_from(BLOCK).unwrap_or(usize::MAX) - within);
        visit(at / BLOCK, within, done..done + count);
        done += count;
    }
}

impl BlockVolume for MemoryBlocks {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.check(offset, into.len() as u64)?;
        let blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        each_block(offset, into.len(), |block, within, range| {
            let Some(into) = into.get_mut(range) else { return };
            match blocks.get(&block).and_then(|bytes| bytes.get(within..within + into.len())) {
                Some(bytes) => into.copy_from_slice(bytes),
                None => into.fill(0),
            }
        });
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(offset, data.len() as u64)?;
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        each_block(offset, data.len(), |block, within, range| {
            let Some(data) = data.get(range) else { return };
            let empty = || vec![0; usize::try_from(BLOCK).unwrap_or(0)].into_boxed_slice();
            let bytes = blocks.entry(block).or_insert_with(empty);
            if let Some(into) = bytes.get_mut(within..within + data.len()) {
                into.copy_from_slice(data);
            }
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.check(offset, length)?;
        let (first, end) = (offset.div_ceil(BLOCK), (offset + length) / BLOCK);
        let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if first < end {
            let mut rest = blocks.split_off(&first);
            blocks.append(&mut rest.split_off(&end));
        }
        Ok(())
    }
}
