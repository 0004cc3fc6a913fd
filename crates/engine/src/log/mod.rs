//! A shard's log: it packs requests into records, writes the records, and applies them in order.
//!
//! Owns the way of a request through its parts, each of which owns one kind of state: the requests
//! that wait ([`CommitQueue`]), the open segments and records in flight ([`Appender`]), the waits
//! for space ([`SpaceGate`]), and the schedule of checkpoints ([`CheckpointSchedule`]). One task
//! commits. Each time it runs, it packs all queued requests of a write class into one record, so
//! that records grow with the load and a single write does not wait. A record is applied when it
//! changes the map and its writers are answered. Always true (docs/invariants.md):
//! - L1: records are applied in the order of their sequence numbers, without gaps.
//! - L2: a record is applied only when every column on a drive in use is written, and never with
//!   fewer than k columns.
//! - L3: after a record has failed, no record is applied any more: the pool becomes read-only.
//! - L4: `durable` is the sequence of a record up to which everything was flushed after it was
//!   written.

mod appender;
mod apply;
mod checkpoint_schedule;
mod commit;
mod commit_queue;
mod flush;
mod flush_rounds;
mod gc_pacer;
mod identity;
mod open;
mod open_segments;
mod phase;
mod records;
mod request;
mod space_gate;
mod stripe;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use format::Sequence;
use reactor::{Notify, Reactor, WaitList, local_oneshot};

pub(crate) use identity::Identity;
pub(crate) use request::{Effect, REQUEST_BLOCKS_MAX, Request, WriteClass};

use crate::control_link::ControlLink;
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::Geometry;
use crate::ledger::Ledger;
use crate::row_reader::RowReader;
use crate::space::Space;
use appender::Appender;
use checkpoint_schedule::CheckpointSchedule;
use commit_queue::CommitQueue;
use flush_rounds::FlushRounds;
use gc_pacer::GcPacer;
use open_segments::OpenSegments;
use phase::Phase;
use records::RecordsInFlight;
use space_gate::SpaceGate;

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
    /// Maximum number of records in flight that are not full.
    depth: usize,
    /// The requests that wait for a record.
    queue: RefCell<CommitQueue>,
    /// Open segments, and records in flight.
    pub(crate) appender: Appender,
    /// Decides which write classes wait for space.
    space_gate: Rc<RefCell<SpaceGate>>,
    /// Paces the cleaner and throttles client writes.
    pub(crate) pacer: GcPacer,
    /// When the next checkpoint is due.
    pub(crate) checkpoints: Rc<CheckpointSchedule>,
    flush_rounds: FlushRounds,
    phase: Phase,
    failure: RefCell<Option<Error>>,
    pub(crate) counters: Cell<LogCounters>,
    /// Wakes the commit task.
    work: Notify,
    /// The commit task waits for a segment to be opened.
    opening: Cell<bool>,
    /// Woken when requests were answered.
    settled: WaitList,
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
        assert!(start.depth > 0, "a log makes progress");
        assert!(start.anchor.1 <= start.last, "S5: a checkpoint contains records of the history");
        let space_gate: Rc<RefCell<SpaceGate>> = Rc::default();
        let checkpoints = Rc::new(CheckpointSchedule::new(start.anchor, start.checkpoint_blocks));
        let appender = Appender {
            identity: start.identity,
            geometry: start.geometry,
            rows: rows.clone(),
            link: link.clone(),
            space: start.space.clone(),
            checkpoints: checkpoints.clone(),
            recent_max: start.recent_max,
            open: OpenSegments::default(),
            records: RefCell::new(RecordsInFlight::new(start.last)),
        };
        Rc::new(Self {
            identity: start.identity,
            geometry: start.geometry,
            reactor: Reactor::current(),
            rows,
            ledger,
            link,
            depth: start.depth,
            queue: RefCell::default(),
            appender,
            pacer: GcPacer::new(start.space, space_gate.clone()),
            space_gate,
            checkpoints,
            flush_rounds: FlushRounds::default(),
            phase: Phase::default(),
            failure: RefCell::new(None),
            counters: Cell::default(),
            work: Notify::default(),
            opening: Cell::new(false),
            settled: WaitList::default(),
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
        self.queue.borrow_mut().push(write_class, request);
        self.work.notify();
    }

    /// Waits until everything queued by now is applied or has failed.
    pub(crate) async fn wait_for_queued(&self) {
        let mark = self.queue.borrow().mark();
        let reached = || self.queue.borrow().is_settled(&mark, self.appender.applied().next());
        self.settled.until(|| (self.failure().is_some() || reached()).then_some(())).await;
    }

    /// Counts requests of a write class as answered.
    fn count_answered(&self, write_class: WriteClass, requests: usize) {
        self.queue.borrow_mut().count_answered(write_class, requests as u64);
        self.settled.wake_all();
    }

    /// Returns the error that ended the log, if it has failed (L3).
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// Notes that a checkpoint has begun.
    pub(crate) fn checkpoint_started(&self) {
        self.checkpoints.started();
    }

    /// Notes that a checkpoint has ended, and retries the requests that waited for it.
    pub(crate) fn checkpoint_ended(&self, result: &Result<()>) {
        self.checkpoints.ended();
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
            self.checkpoints.request();
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
            self.checkpoints.request();
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
        self.checkpoints.request();
        self.pacer.stop();
        self.work.notify();
    }

    /// Ends the commit task once the queues are empty; later requests are refused.
    pub(crate) async fn stop(&self) {
        self.phase.stop();
        self.retry_waiting();
        self.phase.ended().await;
    }

    fn closed_error(&self) -> Option<Error> {
        self.phase.has_ended().then(|| Error::new(ErrorKind::Closed, "the pool was closed"))
    }

    /// Returns true if nothing is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queue.borrow().is_empty() && self.appender.records.borrow().len() == 0
    }

    /// Fails the log (L3): all requests, queued or in flight, are answered with the error.
    pub(crate) fn fail(&self, error: &Error) {
        if self.failure.borrow().is_some() {
            return;
        }
        tracing::error!(shard = %self.identity.shard, %error, "shard failed: it accepts no more writes");
        *self.failure.borrow_mut() = Some(error.clone());
        let queued = self.queue.borrow_mut().take_all();
        queued.for_each(|request| self.refuse(request, error));
        self.appender.records.borrow().mark_all_ended();
        self.apply_written();
        self.flush_rounds.wake_all();
        self.settled.wake_all();
        self.checkpoints.request();
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
