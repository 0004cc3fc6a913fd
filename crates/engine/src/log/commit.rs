//! The commit task: chooses a write class, packs its requests into a record, and starts to write
//! the record.

use std::rc::Rc;

use format::SegmentClass;

use super::Log;
use super::appender::AppendPlace;
use super::open_segments::OpenError;
use super::request::{Batch, WriteClass, prefers_mirror};
use super::space_gate::{GateStep, SpaceState};
use crate::error::{Error, ErrorKind};
use crate::segments::AllocPriority;
use crate::write_waits::{WriteWait, WriteWaitCounts};

/// Full records may reach this multiple of the depth that other records are limited to.
const FULL_DEPTH_FACTOR: usize = 4;
/// Maximum number of requests in a record that is mirrored.
const MIRRORED_REQUESTS_MAX: usize = 8;

impl Log {
    /// Commits queued requests until [`Log::stop`]. One task per log.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.work.notified().await;
            while let Some(write_class) = self.next_class() {
                self.queue.borrow_mut().note_served(write_class);
                self.commit_one(write_class).await;
            }
            if self.phase.is_stopping() && (self.is_idle() || self.failure().is_some()) {
                return self.phase.end();
            }
            self.trace_waits();
        }
    }

    /// Returns the write class to serve next, if one more record may be written.
    fn next_class(&self) -> Option<WriteClass> {
        let next = self.queue.borrow().next_class(|write_class| self.hold_of(write_class).is_some());
        next.filter(|write_class| self.may_start(*write_class) && self.failure().is_none())
    }

    /// Returns the reason why a write class is not served now, regardless of the records in flight.
    fn hold_of(&self, write_class: WriteClass) -> Option<WriteWait> {
        if write_class == WriteClass::User && !self.pacer.may_write() && !self.phase.is_stopping() {
            return Some(WriteWait::CleanerDebt);
        }
        match self.space_gate.borrow().state_of(write_class) {
            SpaceState::Open => None,
            SpaceState::WaitForCheckpoint => Some(WriteWait::Checkpoint),
            SpaceState::WaitForCleaner => Some(WriteWait::Cleaner),
            SpaceState::AskOtherShards => Some(WriteWait::OtherShards),
            SpaceState::Refuse => panic!("S4: a refused class stays in the queue"),
        }
    }

    /// Returns true if one more record may be in flight. At [`Log::depth`], a record with room left
    /// waits for more requests to join it; a full one has nothing to wait for.
    fn may_start(&self, write_class: WriteClass) -> bool {
        let in_flight = self.appender.records.borrow().len();
        in_flight < self.depth
            || in_flight < FULL_DEPTH_FACTOR * self.depth && self.queue.borrow().fills_record(write_class)
    }

    /// Returns the numbers of queued client requests by their waits, and of those in records that
    /// are being written.
    pub(crate) fn write_waits(&self) -> WriteWaitCounts {
        let mut counts = self.appender.records.borrow().write_waits();
        for write_class in [WriteClass::User, WriteClass::Trim] {
            let queued = self.queue.borrow().len(write_class) as u64;
            counts.add(self.queue_wait(write_class), queued);
        }
        counts
    }

    /// Returns the event that the requests in the queue of a class wait for.
    fn queue_wait(&self, write_class: WriteClass) -> WriteWait {
        let opening = || self.opening.get().then_some(WriteWait::SegmentOpening);
        self.hold_of(write_class).or_else(opening).unwrap_or(WriteWait::RecordSlot)
    }

    /// Emits the waits of the queued requests, once for each time that the commit task has nothing
    /// to do.
    fn trace_waits(&self) {
        if !tracing::enabled!(tracing::Level::TRACE) {
            return;
        }
        for (wait, requests) in self.write_waits().iter().filter(|(_, requests)| *requests > 0) {
            tracing::trace!(shard = %self.identity.shard, wait = wait.name(), requests, "writes wait");
        }
    }

    /// Writes one record from a queue, or opens or seals a segment that it needs.
    async fn commit_one(self: &Rc<Self>, write_class: WriteClass) {
        let class = self.class_for(write_class);
        // Checked before room is used: from here on the rest of the open segments is reserved for
        // the checkpoint.
        if self.appender.recent_is_full(write_class.priority()) {
            let step = self.space_gate.borrow_mut().needs_checkpoint(write_class);
            let error = Error::new(ErrorKind::NoSpace, "no checkpoint can be made");
            return self.perform(step, write_class, &error);
        }
        let priority = self.priority(write_class);
        if let Some(place) = self.appender.current(class, priority)
            && place.room.rows > 0
            && let Some(batch) = self.next_batch(write_class, place)
        {
            self.write_record(place, batch, write_class);
            if matches!(class, SegmentClass::Hot | SegmentClass::Mirror) {
                self.open_ahead(class);
            }
            return;
        }
        let priority = self.opening_priority(write_class, priority);
        self.opening.set(true);
        let opened = self.appender.open_next(class, priority).await;
        self.opening.set(false);
        match opened {
            Ok(()) => {}
            Err(OpenError::Unallocated(error)) if error.kind() == ErrorKind::NoSpace => {
                self.no_free_segment(write_class, &error);
            }
            Err(OpenError::Unallocated(error) | OpenError::Unpublished(error)) => self.fail(&error),
        }
    }

    /// Takes the requests for a record; `None` if the next one does not fit the segment.
    fn next_batch(&self, write_class: WriteClass, place: AppendPlace) -> Option<Batch> {
        let atomic = self.geometry.atomic_blocks();
        // Requests that arrive after the last record of the allowed depth have to wait, and can be
        // batched.
        let more_to_come = self.appender.records.borrow().len() + 1 >= self.depth;
        let (scheme, rows) = (place.scheme, place.room.rows);
        let batch = self.queue.borrow_mut().take_batch(write_class, scheme, rows, atomic, more_to_come);
        if batch.requests.is_empty() {
            return None;
        }
        self.ledger.map.borrow_mut().repin(&batch.shared_pins);
        Some(batch)
    }

    /// Opens spare segments for new data in the background.
    fn open_ahead(self: &Rc<Self>, class: SegmentClass) {
        while self.appender.begin_spare(class) {
            let log = self.clone();
            let open_spare = async move {
                // Any error but this one has failed or closed the pool, which later requests
                // report.
                if let Err(OpenError::Unpublished(error)) = log.appender.open_spare(class).await {
                    log.fail(&error);
                }
            };
            self.reactor.spawn(open_spare).detach();
        }
    }

    /// Handles a write class that found no free segment.
    fn no_free_segment(self: &Rc<Self>, write_class: WriteClass, error: &Error) {
        let is_freeing = || {
            let mut segments = self.rows.segments.borrow_mut();
            segments.free_emptied() > 0 || segments.freed_count() > 0
        };
        let step = self.space_gate.borrow_mut().no_free_segment(write_class, is_freeing);
        self.perform(step, write_class, error);
    }

    /// Performs a decision about a write class without space.
    fn perform(self: &Rc<Self>, step: GateStep, write_class: WriteClass, error: &Error) {
        tracing::trace!(shard = %self.identity.shard, ?write_class, ?step, "no space for a write");
        if step.wake_cleaner {
            self.pacer.wake();
        }
        if step.ask_peers {
            self.ask_other_shards();
        }
        match step.decision {
            SpaceState::Refuse => self.refuse_all(write_class, error),
            SpaceState::WaitForCheckpoint => self.checkpoints.request(),
            SpaceState::WaitForCleaner | SpaceState::AskOtherShards => {}
            SpaceState::Open => panic!("S4: a class without space is open"),
        }
    }

    /// Makes the other shards clean before requests are refused.
    fn ask_other_shards(self: &Rc<Self>) {
        let log = self.clone();
        let request = async move {
            let gained = log.link.clean_other_shards().await;
            log.space_gate.borrow_mut().peers_answered(gained);
            log.work.notify();
        };
        self.reactor.spawn(request).detach();
    }

    /// Answers all queued requests of a write class with an error.
    fn refuse_all(&self, write_class: WriteClass, error: &Error) {
        self.space_gate.borrow_mut().class_was_refused(write_class);
        let next = self.appender.records.borrow().next();
        let refused = self.queue.borrow_mut().take_refused(write_class, next);
        let count = refused.iter().filter(|request| request.reply.is_some()).count();
        for request in refused {
            self.refuse(request, error);
        }
        self.count_answered(write_class, count);
    }

    /// Returns the segment class for the next record of a write class.
    fn class_for(&self, write_class: WriteClass) -> SegmentClass {
        match write_class {
            WriteClass::Cold => return SegmentClass::Cold,
            WriteClass::Checkpoint => return SegmentClass::Map,
            WriteClass::User | WriteClass::Trim | WriteClass::Freeing => {}
        }
        // One header block is enough for every record that a mirror is chosen for.
        match self.queue.borrow().small_payload(write_class, MIRRORED_REQUESTS_MAX) {
            Some(payload) if prefers_mirror(self.geometry.scheme, 1 + payload) => SegmentClass::Mirror,
            _ => SegmentClass::Hot,
        }
    }

    /// Returns the allocation priority of a write class.
    fn priority(&self, write_class: WriteClass) -> AllocPriority {
        match write_class {
            WriteClass::Cold if self.space_gate.borrow().is_compacting() => AllocPriority::Checkpoint,
            _ => write_class.priority(),
        }
    }

    /// Returns the priority at which the next segment is opened. Beyond the segments of its plan, a
    /// compaction takes nothing from the checkpoint reserve (S4).
    fn opening_priority(&self, write_class: WriteClass, priority: AllocPriority) -> AllocPriority {
        let is_planned = || self.space_gate.borrow_mut().take_compaction_segment();
        if write_class != WriteClass::Cold || priority != AllocPriority::Checkpoint || is_planned() {
            return priority;
        }
        tracing::debug!(shard = %self.identity.shard, "a compaction exceeds its plan");
        write_class.priority()
    }

    /// Lets moved data use the checkpoint reserve, and open up to `segments` segments there. Only a
    /// compaction, which makes sure that enough remains for checkpoints, calls this.
    pub(crate) fn begin_compaction(&self, segments: u64) {
        self.space_gate.borrow_mut().begin_compaction(segments);
    }

    /// Returns the number of times that a compaction needed more segments than its plan (S4).
    pub(crate) fn compaction_overruns(&self) -> u64 {
        self.space_gate.borrow().compaction_overruns()
    }

    /// Ends the access of moved data to the checkpoint reserve.
    pub(crate) fn end_compaction(&self) {
        self.space_gate.borrow_mut().end_compaction();
    }

    /// Builds a record at the end of a segment and starts to write it.
    fn write_record(self: &Rc<Self>, place: AppendPlace, batch: Batch, write_class: WriteClass) {
        self.space_gate.borrow_mut().class_was_served(write_class);
        let (record, writes) = self.appender.append(place, batch, write_class);
        self.count_record(&record, place.scheme);
        self.finish_when_written(record, writes);
    }
}
