//! What is to go wrong with a memory volume: hooks for tests.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use reactor::Gate;

use crate::{VolumeError, VolumeErrorKind};

/// Faults of a [`crate::MemoryVolume`], one list per kind of operation. Discarding and zeroing count as writing, listing
/// extents as reading.
#[derive(Default)]
pub struct MemoryFaults {
    reads: Faults,
    writes: Faults,
    flushes: Faults,
}

#[derive(Default)]
struct Faults {
    /// What becomes of the next operations: each fails in this way, or does not.
    fates: RefCell<VecDeque<Option<VolumeErrorKind>>>,
    gate: Gate,
    waiting: Cell<usize>,
}

impl MemoryFaults {
    /// Fails the next read whose fate is not decided yet.
    pub fn fail_next_read(&self, kind: VolumeErrorKind) {
        self.reads.decide_next(Some(kind));
    }

    /// Lets the next read do well whose fate is not decided yet.
    pub fn spare_next_read(&self) {
        self.reads.decide_next(None);
    }

    /// Fails the next write whose fate is not decided yet.
    pub fn fail_next_write(&self, kind: VolumeErrorKind) {
        self.writes.decide_next(Some(kind));
    }

    /// Fails the next flush whose fate is not decided yet.
    pub fn fail_next_flush(&self, kind: VolumeErrorKind) {
        self.flushes.decide_next(Some(kind));
    }

    /// Holds reads that begin from now on, until as many calls of [`MemoryFaults::release_reads`].
    pub fn hold_reads(&self) {
        self.reads.gate.shut();
    }

    /// Takes back one [`MemoryFaults::hold_reads`].
    pub fn release_reads(&self) {
        self.reads.gate.open();
    }

    /// Holds writes that begin from now on, until as many calls of [`MemoryFaults::release_writes`].
    pub fn hold_writes(&self) {
        self.writes.gate.shut();
    }

    /// Takes back one [`MemoryFaults::hold_writes`].
    pub fn release_writes(&self) {
        self.writes.gate.open();
    }

    /// How many reads are held now.
    pub fn held_reads(&self) -> usize {
        self.reads.waiting.get()
    }

    /// How many writes are held now.
    pub fn held_writes(&self) -> usize {
        self.writes.waiting.get()
    }

    pub(super) async fn before_read(&self) -> Result<(), VolumeError> {
        self.reads.before().await
    }

    pub(super) async fn before_write(&self) -> Result<(), VolumeError> {
        self.writes.before().await
    }

    pub(super) async fn before_flush(&self) -> Result<(), VolumeError> {
        self.flushes.before().await
    }
}

impl Faults {
    fn decide_next(&self, fate: Option<VolumeErrorKind>) {
        self.fates.borrow_mut().push_back(fate);
    }

    async fn before(&self) -> Result<(), VolumeError> {
        if !self.gate.is_open() {
            self.waiting.set(self.waiting.get() + 1);
            self.gate.pass().await;
            self.waiting.set(self.waiting.get() - 1);
        }
        match self.fates.borrow_mut().pop_front().flatten() {
            Some(kind) => Err(VolumeError::new(kind, format!("a test asked for this: {kind}"))),
            None => Ok(()),
        }
    }
}
