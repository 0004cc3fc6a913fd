//! The space of bodies: allocation, and the delayed reuse of freed runs.
//!
//! Always true: a run is discarded and reused only when the commit that freed it is durable, no
//! reader looks up an older state of the index, and no reader holds the run. No run is longer than
//! `RUN_BYTES_MAX`: a body that shares a range of another one keeps whole runs of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::allocator::{Allocator, BodyRun};
use crate::error::{ObjectError, ObjectErrorKind, Result};
use crate::segment::BodySegment;
use crate::volume::{BLOCK, BlockVolume};

/// The largest run in bytes.
pub(crate) const RUN_BYTES_MAX: u64 = 16 << 20;
/// The largest run in blocks.
const RUN_BLOCKS_MAX: u64 = RUN_BYTES_MAX / BLOCK;

/// The space of bodies on the volume.
#[derive(Debug)]
pub(crate) struct BodySpace {
    volume: Arc<dyn BlockVolume>,
    state: Mutex<SpaceState>,
    /// Signals freed runs, and the close.
    changed: Condvar,
}

#[derive(Debug)]
struct SpaceState {
    allocator: Allocator,
    /// The number of commits so far.
    epoch: u64,
    /// Lookups in progress by the epoch of their beginning.
    lookups: BTreeMap<u64, usize>,
    /// Readers by the first block of the runs that they hold.
    holds: HashMap<u64, usize>,
    /// Freed runs, with the epoch from which on no lookup finds them.
    freed: Vec<(u64, BodyRun)>,
    /// Runs that are being discarded.
    discarding: usize,
    /// Allocated blocks that no object refers to yet.
    unreferenced: u64,
    /// True if free blocks may hold data, because a discard failed.
    has_undiscarded: bool,
    /// True if no more blocks are allocated.
    is_ending: bool,
    is_closed: bool,
}

/// The result of an allocation.
pub(crate) enum Allocation {
    /// The runs.
    Runs(Vec<BodyRun>),
    /// The frontier must advance first, in a durable commit.
    NeedsFrontier,
    /// The volume has no free blocks.
    Full,
    /// The store is being closed.
    Closed,
}

impl BodySpace {
    pub(crate) fn new(volume: Arc<dyn BlockVolume>, allocator: Allocator) -> Self {
        let state = SpaceState {
            allocator,
            epoch: 0,
            lookups: BTreeMap::new(),
            holds: HashMap::new(),
            freed: Vec::new(),
            discarding: 0,
            unreferenced: 0,
            has_undiscarded: false,
            is_ending: false,
            is_closed: false,
        };
        Self { volume, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, SpaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The volume.
    pub(crate) fn volume(&self) -> &Arc<dyn BlockVolume> {
        &self.volume
    }

    /// Allocates blocks for `bytes` bytes.
    pub(crate) fn allocate(&self, bytes: u64) -> Allocation {
        let mut state = self.lock();
        if state.is_ending {
            return Allocation::Closed;
        }
        let blocks = bytes.div_ceil(BLOCK);
        match state.allocator.allocate(blocks) {
            Some(runs) => {
                state.unreferenced += blocks;
                Allocation::Runs(runs.into_iter().flat_map(pieces).collect())
            }
            None if state.allocator.next_frontier(1) > state.allocator.frontier() => {
                Allocation::NeedsFrontier
            }
            None => Allocation::Full,
        }
    }

    /// Returns a new frontier if fewer than `bytes` bytes are free below the current one.
    pub(crate) fn wanted_frontier(&self, bytes: u64, step: u64) -> Option<u64> {
        let state = self.lock();
        let next = state.allocator.next_frontier(step / BLOCK);
        (state.allocator.free_blocks() * BLOCK < bytes && next > state.allocator.frontier()).then_some(next)
    }

    /// Makes the blocks below a durable frontier available.
    pub(crate) fn advance(&self, frontier: u64) {
        self.lock().allocator.advance(frontier);
    }

    /// Begins a lookup in the index: until its end, freed runs are not reused.
    pub(crate) fn begin_lookup(&self) -> u64 {
        let mut state = self.lock();
        let epoch = state.epoch;
        *state.lookups.entry(epoch).or_default() += 1;
        epoch
    }

    /// Ends a lookup, and holds the runs that it found.
    pub(crate) fn end_lookup(self: &Arc<Self>, epoch: u64, found: &[BodySegment]) -> RunHold {
        let mut state = self.lock();
        let mut runs = Vec::new();
        for segment in found {
            if let BodySegment::Run { run, .. } = segment {
                *state.holds.entry(*run).or_default() += 1;
                runs.push(*run);
            }
        }
        if let Some(count) = state.lookups.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                state.lookups.remove(&epoch);
            }
        }
        let is_reclaimable = !state.freed.is_empty();
        drop(state);
        if is_reclaimable {
            self.changed.notify_all();
        }
        RunHold { space: self.clone(), runs }
    }

    /// Frees the runs of a commit that has just become durable and visible.
    pub(crate) fn committed(&self, freed: Vec<BodyRun>) {
        let mut state = self.lock();
        state.epoch += 1;
        let epoch = state.epoch;
        state.freed.extend(freed.into_iter().map(|run| (epoch, run)));
        drop(state);
        self.changed.notify_all();
    }

    /// Frees runs that no commit refers to.
    fn release(&self, runs: Vec<BodyRun>) {
        if !runs.is_empty() {
            let mut state = self.lock();
            state.unreferenced -= blocks_of(&runs);
            state.freed.extend(runs.into_iter().map(|run| (0, run)));
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Hands runs over to an object.
    fn adopt(&self, runs: &[BodyRun]) {
        self.lock().unreferenced -= blocks_of(runs);
    }

    /// Discards freed runs and makes them available, until the space is closed. Runs on a thread of
    /// its own.
    pub(crate) fn reclaim(&self) {
        let mut state = self.lock();
        while !state.is_closed {
            let runs = state.take_reclaimable();
            if runs.is_empty() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.discarding = runs.len();
            drop(state);
            let mut has_failed = false;
            for run in merge(&runs) {
                // A failed discard costs space until the store is opened again.
                if let Err(error) = self.volume.discard(run.start * BLOCK, run.blocks * BLOCK) {
                    tracing::warn!(%error, "cannot discard the space of deleted objects");
                    has_failed = true;
                }
            }
            state = self.lock();
            state.has_undiscarded |= has_failed;
            runs.into_iter().for_each(|run| state.allocator.free(run));
            state.discarding = 0;
            self.changed.notify_all();
        }
    }

    /// Waits until no freed run is left that could be reclaimed. Returns false if readers hold
    /// others.
    pub(crate) fn wait_for_reclaim(&self) -> bool {
        let is_busy = |state: &mut SpaceState| {
            !state.is_closed
                && (state.discarding > 0 || state.freed.iter().any(|entry| state.is_free(*entry)))
        };
        let waited = self.changed.wait_while(self.lock(), is_busy);
        waited.unwrap_or_else(PoisonError::into_inner).freed.is_empty()
    }

    /// Ends allocations, and waits until the freed runs are discarded. Returns true if no unused
    /// block holds data: otherwise the next open discards all unused blocks, as after a crash.
    pub(crate) fn end(&self) -> bool {
        self.lock().is_ending = true;
        let is_reclaimed = self.wait_for_reclaim();
        let state = self.lock();
        is_reclaimed && state.unreferenced == 0 && !state.has_undiscarded
    }

    /// Ends [`BodySpace::reclaim`].
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }
}

impl SpaceState {
    fn is_free(&self, (epoch, run): (u64, BodyRun)) -> bool {
        let oldest = self.lookups.keys().next().copied().unwrap_or(u64::MAX);
        epoch <= oldest && !self.holds.contains_key(&run.start)
    }

    fn take_reclaimable(&mut self) -> Vec<BodyRun> {
        let freed = std::mem::take(&mut self.freed);
        let (ready, kept): (Vec<_>, Vec<_>) = freed.into_iter().partition(|entry| self.is_free(*entry));
        self.freed = kept;
        ready.into_iter().map(|(_, run)| run).collect()
    }
}

/// Splits a run into runs of up to `RUN_BLOCKS_MAX` blocks.
fn pieces(run: BodyRun) -> impl Iterator<Item = BodyRun> {
    let end = run.start + run.blocks;
    let starts = (run.start..end).step_by(usize::try_from(RUN_BLOCKS_MAX).unwrap_or(usize::MAX));
    starts.map(move |start| BodyRun { start, blocks: RUN_BLOCKS_MAX.min(end - start) })
}

fn blocks_of(runs: &[BodyRun]) -> u64 {
    runs.iter().map(|run| run.blocks).sum()
}

/// Joins adjacent runs.
fn merge(runs: &[BodyRun]) -> Vec<BodyRun> {
    let mut sorted = runs.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<BodyRun> = Vec::new();
    for run in sorted {
        match merged.last_mut() {
            Some(last) if last.start + last.blocks == run.start => last.blocks += run.blocks,
            _ => merged.push(run),
        }
    }
    merged
}

/// Keeps the runs of an open object from being reused.
#[derive(Debug)]
pub(crate) struct RunHold {
    space: Arc<BodySpace>,
    runs: Vec<u64>,
}

impl Drop for RunHold {
    fn drop(&mut self) {
        if self.runs.is_empty() {
            return;
        }
        let mut state = self.space.lock();
        for run in &self.runs {
            if let Some(count) = state.holds.get_mut(run) {
                *count -= 1;
                if *count == 0 {
                    state.holds.remove(run);
                }
            }
        }
        let is_reclaimable = !state.freed.is_empty();
        drop(state);
        if is_reclaimable {
            self.space.changed.notify_all();
        }
    }
}

/// A body in allocated runs that no object refers to yet. Frees them when it is dropped.
#[derive(Debug)]
pub struct StoredBody {
    space: Arc<BodySpace>,
    runs: Vec<BodyRun>,
    length: u64,
}

impl StoredBody {
    pub(crate) fn new(space: Arc<BodySpace>, runs: Vec<BodyRun>, length: u64) -> Self {
        Self { space, runs, length }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// The runs.
    pub(crate) fn runs(&self) -> &[BodyRun] {
        &self.runs
    }

    /// The space of the runs.
    pub(crate) fn space(&self) -> &Arc<BodySpace> {
        &self.space
    }

    /// Splits a body of one run after `blocks` blocks.
    pub(crate) fn split(mut self, blocks: u64) -> (Self, Option<Self>) {
        let Some(run) = self.runs.first_mut().filter(|run| run.blocks > blocks) else { return (self, None) };
        let rest = BodyRun { start: run.start + blocks, blocks: run.blocks - blocks };
        run.blocks = blocks;
        let rest = Self::new(self.space.clone(), vec![rest], 0);
        (self, Some(rest))
    }

    /// Appends the runs of `other`, which hold `length` bytes. Joins adjacent runs up to the
    /// largest run.
    pub(crate) fn append(&mut self, mut other: Self, length: u64) {
        for run in std::mem::take(&mut other.runs) {
            match self.runs.last_mut() {
                Some(last)
                    if last.start + last.blocks == run.start
                        && last.blocks + run.blocks <= RUN_BLOCKS_MAX =>
                {
                    last.blocks += run.blocks;
                }
                _ => self.runs.push(run),
            }
        }
        self.length += length;
    }

    /// Hands the runs over to an object.
    pub(crate) fn into_segments(mut self) -> (Vec<BodyRun>, Vec<BodySegment>) {
        let runs = std::mem::take(&mut self.runs);
        self.space.adopt(&runs);
        let mut left = self.length;
        let segment = |run: &BodyRun| {
            let length = left.min(run.blocks * BLOCK);
            left -= length;
            BodySegment::Run { run: run.start, offset: 0, length }
        };
        let segments = runs.iter().map(segment).collect();
        (runs, segments)
    }
}

impl Drop for StoredBody {
    fn drop(&mut self) {
        self.space.release(std::mem::take(&mut self.runs));
    }
}

/// The error of a volume without free addresses.
pub(crate) fn no_space() -> ObjectError {
    ObjectError::new(ObjectErrorKind::NoSpace, "the pool has no space for the object")
}

/// Allocates blocks for `bytes` bytes; `advance` makes the frontier advance durably.
///
/// # Errors
/// `NoSpace`; the errors of `advance`.
pub(crate) fn allocate(
    space: &BodySpace,
    bytes: u64,
    mut advance: impl FnMut() -> Result<()>,
) -> Result<Vec<BodyRun>> {
    loop {
        match space.allocate(bytes) {
            Allocation::Runs(runs) => return Ok(runs),
            Allocation::Full => return Err(no_space()),
            Allocation::Closed => {
                return Err(ObjectError::new(ObjectErrorKind::Closed, "the object store is closed"));
            }
            Allocation::NeedsFrontier => advance()?,
        }
    }
}
