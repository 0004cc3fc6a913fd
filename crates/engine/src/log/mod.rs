//! A shard's log: requests become records, records become the map, writers are answered in order.
//!
//! Owns the queues, the open segments, the records in flight and the shard's sequence numbers. One task commits; what
//! is waiting when it comes round goes into one record, so that batches grow with load and a lone write waits for
//! nobody. Always true (docs/invariants.md):
//! - L1: records land (change the map, answer their writers) in the order of their sequence numbers, without gaps.
//! - L2: a record lands only when every column on a drive in use is written, and never with fewer than k columns.
//! - L3: after a record has failed, nothing lands any more: the pool goes on read-only.
//! - L4: `durable` is the sequence of a record up to which everything was flushed after it was written.

mod commit;
mod flush;
mod gc_pacer;
mod open;
mod request;
mod stripe;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use format::{PoolId, PoolKey, SegmentId, Sequence, ShardIndex, ShardRecord};
use reactor::{Notify, Reactor, WaitList, local_oneshot};

use request::PerClass;
pub(crate) use request::{Effect, REQUEST_BLOCKS_MAX, Request, WriteClass};

use crate::control::ControlLink;
use crate::error::{Error, ErrorKind, Result};
use crate::geometry::{Geometry, RecordLayout};
use crate::ledger::Ledger;
use crate::row_reader::RowReader;
use crate::space::Space;
use gc_pacer::GcPacer;

/// Who a shard is.
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

/// What a shard counted since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounters {
    /// Payload blocks that users wrote.
    pub user_blocks: u64,
    /// Payload blocks of map nodes and tables.
    pub map_blocks: u64,
    /// Payload blocks of the catalogue, of zeroed parts and of blocks that were healed.
    pub freeing_blocks: u64,
    /// Payload blocks that the engine moved.
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

/// See the module.
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
    /// The checkpoint that recoveries start from.
    pub(crate) anchor: Cell<(format::MapEntry, Sequence)>,
    /// Raised when a checkpoint is due.
    pub(crate) checkpoint_due: Notify,
    /// Payload and header blocks written since the last checkpoint began.
    pub(crate) blocks_since_checkpoint: Cell<u64>,
    /// Who waits for space or a checkpoint.
    waits: Cell<PerClass<bool>>,
    /// There is no space to come: who waited for it is refused, unless other shards have some.
    exhausted: Cell<bool>,
    /// Other shards were asked for space.
    asked: Cell<PeerSpace>,
    /// Users and the cleaner, in step.
    pub(crate) pacer: GcPacer,
    /// A checkpoint is being made.
    checkpointing: Cell<bool>,
    /// Checkpoints cannot be made now: waiting for one would be in vain.
    checkpoint_failure: RefCell<Option<Error>>,
    /// Whose turn it is: the checkpoint's, or everybody else's.
    others_first: Cell<bool>,
    /// Which of the others was reset_attempts last.
    last_served: Cell<WriteClass>,
    pub(crate) counters: Cell<LogCounters>,
    stopping: Cell<bool>,
    /// What is moved may take of checkpoints' own space, and waits for none.
    compacting: Cell<bool>,
    /// Nobody makes checkpoints or cleans any more: who would wait for that is refused.
    no_reclaim: Cell<bool>,
    /// The commit task has not ended.
    running: Cell<bool>,
    ended: WaitList,
    /// Requests with somebody to answer, queued and answered so far, by write_class.
    queued: Cell<PerClass<u64>>,
    answered: Cell<PerClass<u64>>,
    settled: WaitList,
    /// Records before this one may hold front parts of requests that were refused.
    refused_before: Cell<Sequence>,
}

/// Whether other shards have space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PeerSpace {
    /// Nobody has asked.
    #[default]
    No,
    /// They are looking.
    Pending,
    /// They have none.
    InVain,
}

/// What a log starts with.
pub(crate) struct LogStart {
    pub(crate) identity: Identity,
    pub(crate) geometry: Geometry,
    /// Records in flight at most.
    pub(crate) depth: usize,
    /// Blocks written after which a checkpoint is due.
    pub(crate) checkpoint_blocks: u64,
    /// Segments opened since the last checkpoint at most.
    pub(crate) recent_max: usize,
    /// How full the pool is.
    pub(crate) space: Arc<Space>,
    /// The last record of the shard's history so far; it and all before it are durable.
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
            waits: Cell::default(),
            exhausted: Cell::new(false),
            asked: Cell::default(),
            pacer: GcPacer::new(start.space),
            checkpointing: Cell::new(false),
            checkpoint_failure: RefCell::default(),
            others_first: Cell::new(true),
            last_served: Cell::new(WriteClass::Cold),
            counters: Cell::default(),
            stopping: Cell::new(false),
            compacting: Cell::new(false),
            no_reclaim: Cell::new(false),
            running: Cell::new(true),
            ended: WaitList::default(),
            queued: Cell::default(),
            answered: Cell::default(),
            settled: WaitList::default(),
            refused_before: Cell::default(),
        })
    }

    /// Commits a request and waits until it has landed. Gives the entries of table blocks.
    ///
    /// # Errors
    /// `NoSpace` for user data in a full pool; `PoolFailed` when too many drives are lost. The request's pins are
    /// taken back in every case.
    ///
    /// It is queued when this is called, so that the future, of which every writer has one, need not have room for it.
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

    /// As [`Log::commit`], for requests that carry their own way to answer. Of several that are queued together it is
    /// enough that the last one does: the records of a write_class land in order.
    pub(crate) fn enqueue(&self, write_class: WriteClass, request: Request) {
        if let Some(error) = self.failure().or_else(|| self.closed()) {
            self.refuse(request, &error);
            return;
        }
        let mut queued = self.queued.get();
        *queued.of_mut(write_class) += u64::from(request.reply.is_some());
        self.queued.set(queued);
        self.queues.borrow_mut().of_mut(write_class).push_back(request);
        self.work.notify();
    }

    /// Waits until everything queued by now has landed or will never.
    pub(crate) async fn settle(&self) {
        let queued = self.queued.get();
        let answered = || self.answered.get().iter().zip(queued.iter()).all(|(done, all)| done >= all);
        // The front part of a request that was refused may still be on its way.
        let reached = || answered() && self.applied.get().next() >= self.refused_before.get();
        self.settled.until(|| (self.failure().is_some() || reached()).then_some(())).await;
    }

    /// Requests of a write_class were answered.
    fn count_answered(&self, write_class: WriteClass, requests: usize) {
        let mut answered = self.answered.get();
        *answered.of_mut(write_class) += requests as u64;
        self.answered.set(answered);
        self.settled.wake_all();
    }

    /// Why nothing lands any more, if so.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// The last record that has landed.
    pub(crate) fn applied(&self) -> Sequence {
        self.applied.get()
    }

    /// The state that the superblocks hold of this shard.
    pub(crate) fn shard_record(&self) -> ShardRecord {
        let (root, checkpointed) = self.anchor.get();
        ShardRecord { root, checkpointed, recent: self.rows.segments.borrow().recent() }
    }

    /// A checkpoint is being made.
    pub(crate) fn is_checkpointing(&self) -> bool {
        self.checkpointing.get()
    }

    /// A checkpoint begins.
    pub(crate) fn checkpoint_started(&self) {
        self.checkpointing.set(true);
    }

    /// A checkpoint was made, or could not be: who waited for it goes on.
    pub(crate) fn checkpoint_ended(&self, result: &Result<()>) {
        self.checkpointing.set(false);
        *self.checkpoint_failure.borrow_mut() = result.as_ref().err().cloned();
        self.retry_waiting();
    }

    /// Why the last checkpoint could not be made, if that is so and no space has come back since.
    pub(crate) fn checkpoint_failure(&self) -> Option<Error> {
        self.checkpoint_failure.borrow().clone()
    }

    /// Space was given back: who waits looks again.
    pub(crate) fn space_freed(&self) {
        if self.checkpoint_failure.take().is_some() {
            self.checkpoint_due.notify();
        }
        self.retry_waiting();
        self.pacer.wake();
    }

    /// The cleaner is about to move `blocks`: users may write that much more.
    pub(crate) fn on_cleaner_moved(&self, blocks: usize) {
        self.pacer.on_moved(blocks);
        self.work.notify();
    }

    /// The cleaner finds nothing to do while `coming` segments wait for the next checkpoint.
    pub(crate) fn on_cleaner_idle(&self, coming: usize) {
        self.pacer.set_idle(coming);
        self.work.notify();
    }

    /// The cleaner has done what it could: a segment's worth, or nothing at all.
    pub(crate) fn cleaning_ended(&self, gained: bool) {
        self.exhausted.set(!gained);
        let somebody_waits =
            self.waits.get().iter().any(|waits| *waits) || self.pacer.is_cleaning_for_others();
        self.pacer.cleaning_ended(gained);
        if gained && somebody_waits {
            self.checkpoint_due.notify();
        } else if !gained {
            self.retry_waiting();
        }
    }

    fn retry_waiting(&self) {
        self.waits.set(PerClass::default());
        self.work.notify();
    }

    /// The shard begins to stop: what needs no space is still done.
    pub(crate) fn begin_stop(&self) {
        self.no_reclaim.set(true);
        self.checkpoint_due.notify();
        self.pacer.stop();
        self.retry_waiting();
    }

    /// Ends the commit task once the queues are empty; what comes later is refused.
    pub(crate) async fn stop(&self) {
        self.stopping.set(true);
        self.retry_waiting();
        self.ended.until(|| (!self.running.get()).then_some(())).await;
    }

    fn closed(&self) -> Option<Error> {
        (self.stopping.get() && !self.running.get())
            .then(|| Error::new(ErrorKind::Closed, "the pool was closed"))
    }

    /// The commit task has ended.
    fn has_ended(&self) {
        self.running.set(false);
        self.ended.wake_all();
    }

    /// True if nothing is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.queues.borrow().iter().all(VecDeque::is_empty) && self.in_flight.borrow().is_empty()
    }

    /// Fails the log (L3): everything queued and in flight is answered with the error.
    pub(crate) fn fail(&self, error: &Error) {
        if self.failure.borrow().is_some() {
            return;
        }
        tracing::error!(shard = %self.identity.shard, %error, "the shard takes no more writes");
        *self.failure.borrow_mut() = Some(error.clone());
        let queued = std::mem::take(&mut *self.queues.borrow_mut());
        queued.into_iter().flatten().for_each(|request| self.refuse(request, error));
        let in_flight: Vec<_> = self.in_flight.borrow().iter().cloned().collect();
        for flight in in_flight {
            flight.written.set(true);
        }
        self.land_written();
        self.flushed.wake_all();
        self.settled.wake_all();
        self.checkpoint_due.notify();
    }

    /// Answers a request that will not be committed.
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
