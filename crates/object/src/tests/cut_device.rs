//! A device with a volatile cache that loses power, or fails, at a chosen operation.

use std::io;
use std::sync::{Arc, Mutex};

use rand::RngExt;
use rand::rngs::SmallRng;

use super::same_results::BODIES_START;
use crate::{BlockVolume, MemoryBlocks};

pub(super) const SIZE: u64 = 256 << 20;

/// A device with a volatile cache that fails after a number of writes, flushes and discards: for
/// ever, or once.
#[derive(Debug)]
pub(super) struct CutDevice {
    durable: Arc<MemoryBlocks>,
    state: Mutex<CutState>,
}

#[derive(Debug)]
struct CutState {
    /// Unflushed blocks in order; `None` for discarded ones.
    cache: Vec<(u64, Option<Vec<u8>>)>,
    operations_left: usize,
    /// The error of the one operation that fails; `None` if the power is off from then on.
    once: Option<(io::ErrorKind, SmallRng)>,
    has_failed: bool,
    has_failed_flush: bool,
}

impl CutDevice {
    /// A device that loses power after a number of operations.
    pub(super) fn new(durable: Arc<MemoryBlocks>, operations: usize) -> Arc<Self> {
        Self::with(durable, operations, None)
    }

    /// A device that fails one operation: a write after a part of its blocks, a flush after a part
    /// of the cache, whose rest is lost.
    pub(super) fn failing(
        durable: Arc<MemoryBlocks>,
        operations: usize,
        kind: io::ErrorKind,
        random: SmallRng,
    ) -> Arc<Self> {
        Self::with(durable, operations, Some((kind, random)))
    }

    fn with(
        durable: Arc<MemoryBlocks>,
        operations_left: usize,
        once: Option<(io::ErrorKind, SmallRng)>,
    ) -> Arc<Self> {
        let state =
            CutState { cache: Vec::new(), operations_left, once, has_failed: false, has_failed_flush: false };
        Arc::new(Self { durable, state: Mutex::new(state) })
    }

    /// Returns true if an operation failed, or the power is off for the next one.
    pub(super) fn is_off(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.has_failed || (state.operations_left == 0 && state.once.is_none())
    }

    /// Makes the cache durable, as time does.
    pub(super) fn settle(&self) {
        for (block, data) in std::mem::take(&mut self.state.lock().unwrap().cache) {
            store(&self.durable, block, data);
        }
    }

    /// Returns true if the operation that failed is a flush.
    pub(super) fn has_failed_flush(&self) -> bool {
        self.state.lock().unwrap().has_failed_flush
    }

    /// Loses power: any of the cached blocks may have reached the medium. In some cases those are
    /// all blocks of the index and few of the bodies, or the reverse.
    pub(super) fn cut(&self, random: &mut SmallRng) {
        let mut state = self.state.lock().unwrap();
        let cases = [(0.0, 0.0), (0.5, 0.5), (0.9, 0.9), (1.0, 1.0), (1.0, 0.5), (0.5, 1.0)];
        let (of_index, of_bodies) = cases[random.random_range(0..cases.len())];
        for (block, data) in std::mem::take(&mut state.cache) {
            let share = if block * 4096 < BODIES_START { of_index } else { of_bodies };
            if random.random_bool(share) {
                store(&self.durable, block, data);
            }
        }
    }
}

fn store(volume: &MemoryBlocks, block: u64, data: Option<Vec<u8>>) {
    match data {
        Some(data) => volume.write(block * 4096, &data).unwrap(),
        None => volume.discard(block * 4096, 4096).unwrap(),
    }
}

impl CutState {
    /// Counts an operation. Returns false if it is the one that fails.
    fn count(&mut self) -> io::Result<bool> {
        match self.operations_left.checked_sub(1) {
            Some(left) => self.operations_left = left,
            None if self.once.is_none() => return Err(off()),
            None => {
                (self.operations_left, self.has_failed) = (usize::MAX, true);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns true for half of the blocks of the operation that fails.
    fn is_chosen(&mut self) -> bool {
        self.once.as_mut().is_some_and(|(_, random)| random.random_bool(0.5))
    }

    fn failure(&self) -> io::Error {
        self.once.as_ref().map_or_else(off, |(kind, _)| (*kind).into())
    }
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

impl BlockVolume for CutDevice {
    fn size(&self) -> u64 {
        SIZE
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock().unwrap();
        if state.operations_left == 0 && state.once.is_none() {
            return Err(off());
        }
        self.durable.read(offset, into)?;
        let end = offset + into.len() as u64;
        for (block, data) in &state.cache {
            let (from, to) = ((block * 4096).max(offset), ((block + 1) * 4096).min(end));
            if from < to {
                let index = |value: u64| usize::try_from(value).unwrap();
                let into = &mut into[index(from - offset)..index(to - offset)];
                match data {
                    Some(data) => {
                        into.copy_from_slice(&data[index(from - block * 4096)..index(to - block * 4096)])
                    }
                    None => into.fill(0),
                }
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(offset.is_multiple_of(4096) && data.len().is_multiple_of(4096), "{offset}+{}", data.len());
        let mut state = self.state.lock().unwrap();
        let is_complete = state.count()?;
        for (index, data) in data.chunks(4096).enumerate() {
            if is_complete || state.is_chosen() {
                state.cache.push((offset / 4096 + index as u64, Some(data.to_vec())));
            }
        }
        if is_complete { Ok(()) } else { Err(state.failure()) }
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let is_complete = state.count()?;
        state.has_failed_flush |= !is_complete;
        for (block, data) in std::mem::take(&mut state.cache) {
            if is_complete || state.is_chosen() {
                store(&self.durable, block, data);
            }
        }
        if is_complete { Ok(()) } else { Err(state.failure()) }
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        if !state.count()? {
            return Err(state.failure());
        }
        let (first, end) = (offset / 4096, (offset + length) / 4096);
        state.cache.retain(|(block, _)| !(first..end).contains(block));
        // Blocks without data stay without data.
        let stored = self.durable.stored_blocks(first..end);
        state.cache.extend(stored.into_iter().map(|block| (block, None)));
        Ok(())
    }
}
