//! A shard's log: it packs requests into records, writes the records, and applies them in order.
//!
//! Owns the request queues, the open segments, the records in flight and the shard's sequence
//! numbers. One task commits. Each time it runs, it packs all queued requests of a write class into
//! one record, so that records grow with the load and a single write does not wait. A record is
//! applied when it changes the map and its writers are answered. Always true (docs/invariants.md):
//! - L1: records are applied in the order of their sequence numbers, without gaps.
//! - L2: a record is applied only when every column on a drive in use is written, and never with
//!   fewer than k columns.
//! - L3: after a record has failed, no record is applied any more: the pool becomes read-only.
//! - L4: `durable` is the sequence of a record up to which everything was flushed after it was
//!   written.

mod commit;
mod flush;
mod gc_pacer;
mod open;
mod request;
mod space_gate;
mod stripe;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use format::{PoolId, PoolKey, SegmentId, Sequence, ShardIndex, ShardRecord};
use reactor::{Notify, Reactor, WaitList, local_oneshot};

use request::PerClass;
pub(crate) use request::{Effect, REQUEST_BLOCKS_MAX, Request, WriteClass};

use crate::control_link::ControlLink;
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::{Geometry, RecordLayout};
use crate::ledger::Ledger;
use crate::row_reader::RowReader;
use crate::space::Space;
use gc_pacer::GcPacer;
use space_gate::SpaceGate;

/// The identity of a shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) pool: PoolId,
    pub(crate) key: PoolKey,
    pub(crate) shard: ShardIndex,
}

/// A record being written.
struct PendingRecord {
    sequence: Sequence,
    segment: SegmentId,
    layout: RecordLayout,
    header_blocks: u32,
    crcs: Vec<u32>,
    batch: RefCell<request::Batch>,
    write_class: WriteClass,
    written: Cell<bool>,
}

/// Counters of a shard's log since the shard was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Payload blocks of client writes.
    pub user_blocks: u64,
    /// Payload blocks of map nodes and tables.
    pub map_blocks: u64,
    /// Payload blocks of the catalogue and of healed blocks.
    pub freeing_blocks: u64,
    /// Payload blocks that the cleaner moved.
    pub moved_blocks: u64,
    /// Header blocks.
    pub header_blocks: u64,
    /// Unused cells of records.
    pub padding_blocks: u64,
    /// Parity and mirror blocks.
    pub parity_blocks: u64,
    /// Records.
    pub records: u64,
}

/// A shard's log.
pub(crate) struct Log {
    identity: Identity,
    geometry: Geometry,
    reactor: Reactor,
    pub(crate) rows: Rc<RowReader>,
    pub(crate) ledger: Rc<Ledger>,
    link: ControlLink,
    depth: usize,
    checkpoint_blocks: u64,
    recent_max: usize,
    queues: RefCell<PerClass<VecDeque<Request>>>,
    in_flight: RefCell<VecDeque<Rc<PendingRecord>>>,
    open: open::OpenSegments,
    next: Cell<Sequence>,
    applied: Cell<Sequence>,
    durable: Cell<Sequence>,
    work: Notify,
    flushing: Cell<bool>,
    flushed: WaitList,
    failure: RefCell<Option<Error>>,
    /// Root and sequence of the checkpoint that recovery starts from.
    pub(crate) anchor: Cell<(format::MapEntry, Sequence)>,
    /// Notified when a checkpoint is due.
    pub(crate) checkpoint_due: Notify,
    /// Payload and header blocks written since the last checkpoint began.
    pub(crate) blocks_since_checkpoint: Cell<u64>,
    /// Decides which write classes wait for space.
    space_gate: Rc<RefCell<SpaceGate>>,
    /// Paces the cleaner and throttles client writes.
    pub(crate) pacer: GcPacer,
    /// A checkpoint is in progress.
    checkpointing: Cell<bool>,
    /// The other write classes are served before the checkpoint's next.
    others_first: Cell<bool>,
    /// The class other than the checkpoint's that was served last.
    last_served: Cell<WriteClass>,
    pub(crate) counters: Cell<LogCounters>,
    stopping: Cell<bool>,
    /// The commit task has not ended.
    running: Cell<bool>,
    ended: WaitList,
    /// Requests that have a reply channel, queued and answered so far, by write class.
    queued: Cell<PerClass<u64>>,
    answered: Cell<PerClass<u64>>,
    settled: WaitList,
    /// Records before this one may contain the front parts of refused requests.
    refused_before: Cell<Sequence>,
}

/// The parameters of a new log.
pub(crate) struct LogStart {
    pub(crate) identity: Identity,
    pub(crate) geometry: Geometry,
    /// Maximum number of records in flight.
    pub(crate) depth: usize,
    /// Number of blocks written after which a checkpoint is due.
    pub(crate) checkpoint_blocks: u64,
    /// Maximum number of segments opened since the last checkpoint.
    pub(crate) recent_max: usize,
    /// The space accounting of the pool.
    pub(crate) space: Arc<Space>,
    /// The last record of the shard's history so far; it and all records before it are durable.
    pub(crate) last: Sequence,
    pub(crate) anchor: (format::MapEntry, Sequence),
}

impl Log {
    pub(crate) fn new(
        start: LogStart,
        ledger: Rc<Ledger>,
        rows: Rc<RowReader>,
        link: ControlLink,
    ) -> Rc<Self> {
        assert!(start.depth > 0 && start.checkpoint_blocks > 0, "a log makes progress");
        assert!(start.anchor.1 <= start.last, "S5: a checkpoint contains records of the history");
        let space_gate: Rc<RefCell<SpaceGate>> = Rc::default();
        Rc::new(Self {
            identity: start.identity,
            geometry: start.geometry,
            reactor: Reactor::current(),
            rows,
            ledger,
            link,
            depth: start.depth,
            checkpoint_blocks: start.checkpoint_blocks,
            recent_max: start.recent_max,
            queues: RefCell::default(),
            in_flight: RefCell::default(),
            open: open::OpenSegments::default(),
            next: Cell::new(start.last.next()),
            applied: Cell::new(start.last),
            durable: Cell::new(start.last),
            work: Notify::default(),
            flushing: Cell::new(false),
            flushed: WaitList::default(),
            failure: RefCell::new(None),
            anchor: Cell::new(start.anchor),
            checkpoint_due: Notify::default(),
            blocks_since_checkpoint: Cell::new(0),
            pacer: GcPacer::new(start.space, space_gate.clone()),
            space_gate,
            checkpointing: Cell::new(false),
            others_first: Cell::new(true),
            last_served: Cell::new(WriteClass::Cold),
            counters: Cell::default(),
            stopping: Cell::new(false),
            running: Cell::new(true),
            ended: WaitList::default(),
            queued: Cell::default(),
            answered: Cell::default(),
            settled: WaitList::default(),
            refused_before: Cell::default(),
        })
    }

    /// Commits a request and waits until it is applied. Returns the entries of table blocks.
    ///
    /// The request is queued when this is called, not when the future is first polled, so that the
    /// futures of writers need no room for it.
    ///
    /// # Errors
    /// `NoSpace` for client data in a full pool; `PoolFailed` when too many drives have failed. The
    /// request's pins are released in every case.
    pub(crate) fn commit(
        &self,
        write_class: WriteClass,
        mut request: Request,
    ) -> impl Future<Output = Result<Vec<format::MapEntry>>> + use<> {
        let (sender, receiver) = local_oneshot();
        request.reply = Some(sender);
        self.enqueue(write_class, request);
        let closed = || Err(Error::new(ErrorKind::Closed, "the pool was closed"));
        async move { receiver.await.unwrap_or_else(closed) }
    }

    /// Queues a request that has its own reply channel, or none. If several requests are queued
    /// together, it is enough that the last one has one: the records of a write class are applied
    /// in order.
    pub(crate) fn enqueue(&self, write_class: WriteClass, request: Request) {
        if let Some(error) = self.failure().or_else(|| self.closed_error()) {
            self.refuse(request, &error);
            return;
        }
        let mut queued = self.queued.get();
        *queued.of_mut(write_class) += u64::from(request.reply.is_some());
        self.queued.set(queued);
        self.queues.borrow_mut().of_mut(write_class).push_back(request);
        self.work.notify();
    }

    /// Waits until everything queued by now is applied or has failed.
    pub(crate) async fn wait_for_queued(&self) {
        let queued = self.queued.get();
        let answered = || self.answered.get().iter().zip(queued.iter()).all(|(done, all)| done >= all);
        // The front part of a refused request may still be in flight.
        let reached = || answered() && self.applied.get().next() >= self.refused_before.get();
        self.settled.until(|| (self.failure().is_some() || reached()).then_some(())).await;
    }

    /// Counts requests of a write class as answered.
    fn count_answered(&self, write_class: WriteClass, requests: usize) {
        let mut answered = self.answered.get();
        *answered.of_mut(write_class) += requests as u64;
        let queued = self.queued.get();
        assert!(answered.of(write_class) <= queued.of(write_class), "a request is answered once");
        self.answered.set(answered);
        self.settled.wake_all();
    }

    /// Returns the error that ended the log, if it has failed (L3).
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// Returns the sequence of the last applied record.
    pub(crate) fn applied(&self) -> Sequence {
        self.applied.get()
    }

    /// Returns the shard's state as the superblocks store it.
    pub(crate) fn shard_record(&self) -> ShardRecord {
        let (root, checkpointed) = self.anchor.get();
        ShardRecord { root, checkpointed, recent: self.rows.segments.borrow().recent() }
    }

    /// Returns true while a checkpoint is in progress.
    pub(crate) fn is_checkpointing(&self) -> bool {
        self.checkpointing.get()
    }

    /// Notes that a checkpoint has begun.
    pub(crate) fn checkpoint_started(&self) {
        assert!(!self.checkpointing.replace(true), "M3: checkpoints are made one at a time");
    }

    /// Notes that a checkpoint has ended, and retries the requests that waited for it.
    pub(crate) fn checkpoint_ended(&self, result: &Result<()>) {
        assert!(self.checkpointing.replace(false), "M3: a checkpoint ends that has not begun");
        self.space_gate.borrow_mut().checkpoint_ended(result.as_ref().err().cloned());
        self.work.notify();
    }

    /// Returns the error of the last checkpoint, if it failed and no space was freed since.
    pub(crate) fn checkpoint_failure(&self) -> Option<Error> {
        self.space_gate.borrow().checkpoint_failure().cloned()
    }

    /// Notes that space was freed, and retries the requests that waited for it.
    pub(crate) fn space_freed(&self) {
        if self.space_gate.borrow_mut().space_freed() {
            self.checkpoint_due.notify();
        }
        self.work.notify();
        self.pacer.wake();
    }

    /// Notes that the cleaner is about to move `blocks` blocks, which pays for client writes.
    pub(crate) fn on_cleaner_moved(&self, blocks: usize) {
        self.pacer.on_moved(blocks);
        self.work.notify();
    }

    /// Notes that the cleaner found nothing to do; the next checkpoint frees `freed_segments`
    /// segments.
    pub(crate) fn on_cleaner_idle(&self, freed_segments: usize) {
        self.pacer.set_idle(freed_segments);
        self.work.notify();
    }

    /// Notes that the cleaner has gained about a segment, or, if `gained` is false, that it cannot
    /// gain any.
    pub(crate) fn cleaning_ended(&self, gained: bool) {
        let is_waited_for = self.space_gate.borrow().is_waited_for() || self.pacer.is_cleaning_for_others();
        self.space_gate.borrow_mut().cleaning_ended(gained);
        self.pacer.cleaning_ended(gained);
        if gained && is_waited_for {
            self.checkpoint_due.notify();
        } else if !gained {
            self.work.notify();
        }
    }

    fn retry_waiting(&self) {
        self.space_gate.borrow_mut().retry();
        self.work.notify();
    }

    /// Begins to stop: requests that need no reclaimed space are still committed.
    pub(crate) fn begin_stop(&self) {
        self.space_gate.borrow_mut().end_reclaim();
        self.checkpoint_due.notify();
        self.pacer.stop();
        self.work.notify();
    }

    /// Ends the commit task once the queues are empty; later requests are refused.
    pub(crate) async fn stop(&self) {
        self.stopping.set(true);
        self.retry_waiting();
        self.ended.until(|| (!self.running.get()).then_some(())).await;
    }

    fn closed_error(&self) -> Option<Error> {
        (self.stopping.get() && !self.running.get())
            .then(|| Error::new(ErrorKind::Closed, "the pool was closed"))
    }

    fn has_ended(&self) {
        assert!(self.running.replace(false), "the commit task ends once");
        self.ended.wake_all();
    }

    /// Returns true if nothing is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.borrow().iter().all(VecDeque::is_empty) && self.in_flight.borrow().is_empty()
    }

    /// Fails the log (L3): all requests, queued or in flight, are answered with the error.
    pub(crate) fn fail(&self, error: &Error) {
        if self.failure.borrow().is_some() {
            return;
        }
        tracing::error!(shard = %self.identity.shard, %error, "shard failed: it accepts no more writes");
        *self.failure.borrow_mut() = Some(error.clone());
        let queued = std::mem::take(&mut *self.queues.borrow_mut());
        queued.into_iter().flatten().for_each(|request| self.refuse(request, error));
        let in_flight: Vec<_> = self.in_flight.borrow().iter().cloned().collect();
        for flight in in_flight {
            flight.written.set(true);
        }
        self.apply_written();
        self.flushed.wake_all();
        self.settled.wake_all();
        self.checkpoint_due.notify();
    }

    /// Answers a request that will not be committed with `error`.
    fn refuse(&self, request: Request, error: &Error) {
        match &request.effect {
            Effect::Leaves(pins) => self.ledger.unpin(pins),
            Effect::Merge { from, into } => {
                self.ledger.unpin(from);
                self.ledger.unpin(into);
            }
            Effect::Nodes(nodes) => {
                nodes.iter().for_each(|node| self.ledger.map.borrow_mut().node_failed(*node));
            }
            Effect::Nothing => {}
        }
        if let Some(reply) = request.reply {
            reply.send(Err(error.clone()));
        }
    }
}
