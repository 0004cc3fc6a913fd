//! The index's file: a region of the volume as the storage of a database.
//!
//! Writes are kept in memory until the database synchronises, and are then written together.
//! Always true: the length on the volume covers every durable page. While the database is opened,
//! reads go ahead, and no other thread uses the region.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use crate::layout::{INDEX_START, ObjectSuperblock};
use crate::read_ahead::ReadAhead;
use crate::volume::{BLOCK, BlockVolume, each_block};

/// Unwritten blocks after which they are written early.
const PENDING_MAX: usize = 4096;

/// A region of the volume.
#[derive(Clone, Debug)]
pub(crate) struct IndexRegion {
    volume: Arc<dyn BlockVolume>,
    state: Arc<Mutex<RegionState>>,
    /// Present while the database is opened.
    read_ahead: Arc<Mutex<Option<ReadAhead>>>,
}

#[derive(Debug)]
struct RegionState {
    superblock: ObjectSuperblock,
    /// Blocks that are not written yet, by number within the region.
    pending: BTreeMap<u64, Vec<u8>>,
}

impl IndexRegion {
    /// Opens the region, or creates it on an empty volume, or after a crash during
    /// its creation. Returns it with its end in bytes.
    ///
    /// # Errors
    /// When the volume cannot be read or holds other data.
    pub(crate) fn open(volume: Arc<dyn BlockVolume>) -> io::Result<(Self, u64)> {
        let superblock = match ObjectSuperblock::load(&*volume)? {
            Some(superblock) if superblock.is_created => superblock,
            before => ObjectSuperblock::create(&*volume, before)?,
        };
        let end = superblock.index_end;
        let state = RegionState { superblock, pending: BTreeMap::new() };
        let (state, read_ahead) = (Arc::new(Mutex::new(state)), Arc::default());
        Ok((Self { volume, state, read_ahead }, end))
    }

    /// Records that the index is complete. Until then, the next open creates it again.
    ///
    /// # Errors
    /// When the volume cannot be written.
    pub(crate) fn mark_created(&self) -> io::Result<()> {
        let mut state = self.lock();
        if !state.superblock.is_created {
            state.superblock = state.superblock.created().store(&*self.volume)?;
        }
        Ok(())
    }

    /// Reads ahead during `open`.
    pub(crate) fn with_read_ahead<T>(&self, open: impl FnOnce() -> T) -> T {
        *self.lock_read_ahead() = Some(ReadAhead::new());
        let opened = open();
        *self.lock_read_ahead() = None;
        opened
    }

    fn lock_read_ahead(&self) -> MutexGuard<'_, Option<ReadAhead>> {
        self.read_ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what was read ahead, before a write.
    fn stop_reading_ahead(&self) {
        if let Some(ahead) = &mut *self.lock_read_ahead() {
            ahead.clear();
        }
    }

    /// Drops writes that the database has not synchronised.
    pub(crate) fn forget_pending(&self) {
        self.lock().pending.clear();
    }

    fn lock(&self) -> MutexGuard<'_, RegionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the pending blocks, adjacent ones in one write.
    fn write_pending(&self, state: &mut RegionState) -> io::Result<()> {
        self.stop_reading_ahead();
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (block, bytes) in &state.pending {
            let offset = INDEX_START + block * BLOCK;
            match runs.last_mut() {
                Some((start, data)) if *start + data.len() as u64 == offset => data.extend_from_slice(bytes),
                _ => runs.push((offset, bytes.clone())),
            }
        }
        self.volume.write_many(runs)?;
        state.pending.clear();
        Ok(())
    }

    fn read_block(&self, state: &RegionState, block: u64) -> io::Result<Vec<u8>> {
        if let Some(bytes) = state.pending.get(&block) {
            return Ok(bytes.clone());
        }
        let mut bytes = empty_block();
        self.volume.read(INDEX_START + block * BLOCK, &mut bytes)?;
        Ok(bytes)
    }
}

/// Returns the error of a flush: never that of a full pool, after which the store continues.
fn flush_failed(error: io::Error) -> io::Error {
    io::Error::other(error)
}

fn empty_block() -> Vec<u8> {
    vec![0; usize::try_from(BLOCK).unwrap_or(0)]
}

impl StorageBackend for IndexRegion {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().superblock.index_len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = {
            let state = self.lock();
            if offset.checked_add(out.len() as u64).is_none_or(|end| end > state.superblock.index_len) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let last = (offset + out.len() as u64).div_ceil(BLOCK);
            let range = (Bound::Included(offset / BLOCK), Bound::Excluded(last));
            if state.pending.range(range).next().is_some() {
                let mut result = Ok(());
                each_block(offset, out.len(), |block, within, range| {
                    let Some(out) = out.get_mut(range) else { return };
                    match self.read_block(&state, block) {
                        Ok(bytes) => {
                            if let Some(bytes) = bytes.get(within..within + out.len()) {
                                out.copy_from_slice(bytes);
                            }
                        }
                        Err(error) => result = Err(error),
                    }
                });
                return result;
            }
            INDEX_START + state.superblock.index_len
        };
        let mut read_ahead = self.lock_read_ahead();
        if let Some(ahead) = &mut *read_ahead {
            return ahead.read(&*self.volume, INDEX_START + offset, out, end);
        }
        // Reads of several threads go on at the same time.
        drop(read_ahead);
        self.volume.read(INDEX_START + offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.lock();
        let old = state.superblock.index_len;
        if INDEX_START + len > state.superblock.index_end {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the index has its maximum size"));
        }
        self.write_pending(&mut state)?;
        let (from, to) = (old.min(len), old.max(len));
        // New positions read as zeros, also where an older index had data.
        let mut start = INDEX_START + from;
        if !start.is_multiple_of(BLOCK) {
            let whole = start.next_multiple_of(BLOCK);
            let mut bytes = empty_block();
            self.volume.read(whole - BLOCK, &mut bytes)?;
            let keep = usize::try_from(start % BLOCK).unwrap_or(0);
            bytes.iter_mut().skip(keep).for_each(|byte| *byte = 0);
            self.volume.write(whole - BLOCK, &bytes)?;
            start = whole;
        }
        let end = (INDEX_START + to).next_multiple_of(BLOCK);
        if start < end {
            self.volume.discard(start, end - start)?;
        }
        self.volume.flush().map_err(flush_failed)?;
        let changed = state.superblock.with_index_len(len);
        state.superblock = changed.store(&*self.volume).map_err(flush_failed)?;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.lock();
        self.write_pending(&mut state)?;
        drop(state);
        self.volume.flush().map_err(flush_failed)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        let mut result = Ok(());
        each_block(offset, data.len(), |block, within, range| {
            let Some(data) = data.get(range) else { return };
            if result.is_err() {
                return;
            }
            let is_whole = data.len() as u64 == BLOCK;
            let bytes = if is_whole { Ok(data.to_vec()) } else { self.read_block(&state, block) };
            match bytes {
                Ok(mut bytes) => {
                    if let Some(into) = bytes.get_mut(within..within + data.len()) {
                        into.copy_from_slice(data);
                    }
                    state.pending.insert(block, bytes);
                }
                Err(error) => result = Err(error),
            }
        });
        result?;
        if state.pending.len() > PENDING_MAX {
            self.write_pending(&mut state)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "region_tests.rs"]
mod tests;
