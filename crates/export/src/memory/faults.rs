//! Fault injection for memory volumes, for tests.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};

use reactor::{Gate, Span};

use crate::select::{Either, select};
use crate::{VolumeError, VolumeErrorKind};

/// Faults of a [`crate::MemoryVolume`], with one list per kind of operation. Discards and zeroing
/// count as writes, extent lists as reads.
#[derive(Default)]
pub struct MemoryFaults {
    reads: Faults,
    writes: Faults,
    flushes: Faults,
    /// Reads and writes that can be aborted wait here before they begin, as for a rate limit.
    begins: Gate,
    deferred: Cell<usize>,
    /// Memory that the data of held writes keeps, as address and size; once for each write.
    held_data: RefCell<Vec<(usize, usize)>>,
}

#[derive(Default)]
struct Faults {
    /// The outcome of the next operations: an error, or success.
    outcomes: RefCell<VecDeque<Option<VolumeErrorKind>>>,
    gate: Gate,
    waiting: Cell<usize>,
}

impl MemoryFaults {
    /// Fails the next read without a decided outcome.
    pub fn fail_next_read(&self, kind: VolumeErrorKind) {
        self.reads.decide_next(Some(kind));
    }

    /// Lets the next read without a decided outcome succeed.
    pub fn pass_next_read(&self) {
        self.reads.decide_next(None);
    }

    /// Fails the next write without a decided outcome.
    pub fn fail_next_write(&self, kind: VolumeErrorKind) {
        self.writes.decide_next(Some(kind));
    }

    /// Fails the next flush without a decided outcome.
    pub fn fail_next_flush(&self, kind: VolumeErrorKind) {
        self.flushes.decide_next(Some(kind));
    }

    /// Holds reads that begin from now on, until an equal number of [`MemoryFaults::release_reads`]
    /// calls.
    pub fn hold_reads(&self) {
        self.reads.gate.shut();
    }

    /// Cancels one [`MemoryFaults::hold_reads`].
    pub fn release_reads(&self) {
        self.reads.gate.open();
    }

    /// Holds writes that begin from now on, until an equal number of
    /// [`MemoryFaults::release_writes`] calls.
    pub fn hold_writes(&self) {
        self.writes.gate.shut();
    }

    /// Cancels one [`MemoryFaults::hold_writes`].
    pub fn release_writes(&self) {
        self.writes.gate.open();
    }

    /// Defers reads and writes that can be aborted, before they begin, until an equal number of
    /// [`MemoryFaults::admit`] calls.
    pub fn defer(&self) {
        self.begins.shut();
    }

    /// Cancels one [`MemoryFaults::defer`].
    pub fn admit(&self) {
        self.begins.open();
    }

    /// Returns the number of deferred operations.
    pub fn deferred(&self) -> usize {
        self.deferred.get()
    }

    pub(super) fn defers(&self) -> bool {
        !self.begins.is_open()
    }

    /// Waits until an operation may begin. Returns false if `abort` completes before.
    pub(super) async fn begins_unless(&self, abort: impl Future<Output = ()>) -> bool {
        if !self.defers() {
            return true;
        }
        self.deferred.set(self.deferred.get() + 1);
        let is_given_up = matches!(select(abort, self.begins.pass()).await, Either::Left(()));
        self.deferred.set(self.deferred.get() - 1);
        !is_given_up
    }

    /// Returns the number of held reads.
    pub fn held_reads(&self) -> usize {
        self.reads.waiting.get()
    }

    /// Returns the number of held writes.
    pub fn held_writes(&self) -> usize {
        self.writes.waiting.get()
    }

    /// Returns the bytes of memory that the data of held writes keeps allocated.
    pub fn held_write_bytes(&self) -> usize {
        self.held_data.borrow().iter().copied().collect::<BTreeMap<_, _>>().values().sum()
    }

    pub(super) async fn before_write_of(&self, data: &Span) -> Result<(), VolumeError> {
        let held = data.allocation();
        self.held_data.borrow_mut().push(held);
        let result = self.before_write().await;
        let mut all = self.held_data.borrow_mut();
        let at = all.iter().position(|other| *other == held);
        at.map(|at| all.swap_remove(at));
        result
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
    fn decide_next(&self, outcome: Option<VolumeErrorKind>) {
        self.outcomes.borrow_mut().push_back(outcome);
    }

    async fn before(&self) -> Result<(), VolumeError> {
        if !self.gate.is_open() {
            self.waiting.set(self.waiting.get() + 1);
            self.gate.pass().await;
            self.waiting.set(self.waiting.get() - 1);
        }
        match self.outcomes.borrow_mut().pop_front().flatten() {
            Some(kind) => Err(VolumeError::new(kind, format!("injected by a test: {kind}"))),
            None => Ok(()),
        }
    }
}
