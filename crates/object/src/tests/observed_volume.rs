//! A volume that counts its reads, and lets them wait for each other.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use crate::{BlockVolume, MemoryBlocks};

/// Blocks in memory.
#[derive(Debug)]
pub(crate) struct ObservedVolume {
    pub(crate) inner: MemoryBlocks,
    pub(crate) reads: AtomicUsize,
    /// Bytes of all reads.
    pub(crate) bytes: AtomicUsize,
    /// Each read waits here, once it is set.
    pub(crate) barrier: Mutex<Option<Arc<Barrier>>>,
}

impl ObservedVolume {
    pub(crate) fn new(inner: MemoryBlocks) -> Self {
        Self { inner, reads: AtomicUsize::new(0), bytes: AtomicUsize::new(0), barrier: Mutex::default() }
    }
}

impl BlockVolume for ObservedVolume {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(into.len(), Ordering::Relaxed);
        let barrier = self.barrier.lock().unwrap().clone();
        if let Some(barrier) = barrier {
            barrier.wait();
        }
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.discard(offset, length)
    }
}
