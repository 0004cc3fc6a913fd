//! The counters of a copy.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a copy, which several tasks change.
#[derive(Debug, Default)]
pub(super) struct CopyCounters {
    done: AtomicU64,
    moved: AtomicU64,
}

impl CopyCounters {
    /// Returns the processed bytes of the disk, including holes.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Sets the processed bytes of the disk.
    pub(super) fn set_done(&self, done: u64) {
        self.done.store(done, Ordering::Relaxed);
    }

    /// Returns the copied bytes.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// Counts copied bytes.
    pub(super) fn add_moved(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
