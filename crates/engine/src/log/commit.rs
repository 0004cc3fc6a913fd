//! The commit task: packs requests into records, writes them, and applies them in order.

use std::rc::Rc;

use codec::Code;
use format::{Column, DriveIndex, Item, RecordLocation, Scheme, SegmentClass, SegmentId};
use reactor::IoResult;
use smallvec::SmallVec;

use super::request::{Batch, REQUEST_BLOCKS_MAX, prefers_mirror};
use super::space_gate::{GateDecision, GateStep, NON_CHECKPOINT_CLASSES, SpaceWait};
use super::stripe::{StripeBuilder, StripeColumns};
use super::{Effect, Log, PendingRecord, WriteClass};
use crate::error::{Error, ErrorKind};
use crate::geometry::RecordLayout;
use crate::in_flight::InFlight;
use crate::invariant::part;
use crate::ledger::Payload;
use crate::map::NodeRef;
use crate::segments::AppendRoom;

/// Full records may reach this multiple of the depth that other records are limited to.
const FULL_DEPTH_FACTOR: usize = 4;

type Writes = SmallVec<[(DriveIndex, InFlight); 8]>;
type Results = SmallVec<[(DriveIndex, IoResult); 8]>;

impl Log {
    /// Commits queued requests until [`Log::stop`]. One task per log.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.work.notified().await;
            while let Some(write_class) = self.next_write_class() {
                if !self.may_start(write_class) || self.failure().is_some() {
                    break;
                }
                self.note_served(write_class);
                self.commit_one(write_class).await;
            }
            if self.stopping.get() && (self.is_idle() || self.failure().is_some()) {
                return self.has_ended();
            }
        }
    }

    /// Returns true if one more record may be in flight. At [`Log::depth`], a record with room left
    /// waits for more requests to join it; a full one has nothing to wait for.
    fn may_start(&self, write_class: WriteClass) -> bool {
        let in_flight = self.in_flight.borrow().len();
        if in_flight < self.depth {
            return true;
        }
        let full = || {
            let queues = self.queues.borrow();
            let mut left = REQUEST_BLOCKS_MAX;
            queues.of(write_class).iter().any(|request| {
                left = left.saturating_sub(request.payload());
                left == 0
            })
        };
        in_flight < FULL_DEPTH_FACTOR * self.depth && full()
    }

    /// Returns the write class to serve next. The checkpoint's and the others alternate, so that
    /// neither starves.
    fn next_write_class(&self) -> Option<WriteClass> {
        let queues = self.queues.borrow();
        let gate = self.space_gate.borrow();
        let is_throttled = |write_class: WriteClass| {
            write_class == WriteClass::User && !self.pacer.may_write() && !self.stopping.get()
        };
        let ready =
            |write_class: WriteClass| !queues.of(write_class).is_empty() && !is_throttled(write_class);
        let after = NON_CHECKPOINT_CLASSES
            .iter()
            .position(|other| *other == self.last_served.get())
            .map_or(0, |at| at + 1);
        let mut others = NON_CHECKPOINT_CLASSES.iter().cycle().skip(after).take(NON_CHECKPOINT_CLASSES.len());
        let waits = |write_class: WriteClass| gate.wait_of(write_class).is_some();
        let other = others.find(|write_class| ready(**write_class) && !waits(**write_class)).copied();
        let checkpoint = ready(WriteClass::Checkpoint).then_some(WriteClass::Checkpoint);
        if self.others_first.get() { other.or(checkpoint) } else { checkpoint.or(other) }
    }

    /// Records that a write class was served, for the alternation.
    fn note_served(&self, write_class: WriteClass) {
        self.others_first.set(write_class == WriteClass::Checkpoint);
        if write_class != WriteClass::Checkpoint {
            self.last_served.set(write_class);
        }
    }

    /// Writes one record from a queue, or opens or seals a segment that it needs.
    async fn commit_one(self: &Rc<Self>, write_class: WriteClass) {
        let class = self.class_for(write_class);
        // Checked before room is used: from here on the rest of the open segments is reserved for
        // the checkpoint.
        if self.recent_is_full(write_class.priority()) {
            let step = self.space_gate.borrow_mut().needs_checkpoint(write_class);
            let error = Error::new(ErrorKind::NoSpace, "no checkpoint can be made");
            return self.perform(step, write_class, &error);
        }
        let priority = self.priority(write_class);
        if let Some((segment, room)) = self.current(class, priority)
            && room.rows > 0
        {
            let scheme = self.scheme_of(class);
            let atomic = self.geometry.atomic_blocks();
            // Requests that arrive after the last record of the allowed depth have to wait, and can
            // be batched.
            let more_to_come = self.in_flight.borrow().len() + 1 >= self.depth;
            let batch = {
                let mut queues = self.queues.borrow_mut();
                Batch::gather(queues.of_mut(write_class), scheme, room.rows, atomic, more_to_come)
            };
            if !batch.requests.is_empty() {
                self.ledger.map.borrow_mut().repin(&batch.shared_pins);
                self.write_record(segment, room, scheme, batch, write_class);
                if matches!(class, SegmentClass::Hot | SegmentClass::Mirror) {
                    self.open_ahead(class);
                }
                return;
            }
        }
        match self.open_next(class, priority).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => self.no_free_segment(write_class, &error),
            Err(error) => self.fail(&error),
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
            GateDecision::Refuse => self.refuse_all(write_class, error),
            GateDecision::Wait(SpaceWait::Checkpoint) => self.checkpoint_due.notify(),
            GateDecision::Wait(SpaceWait::Cleaner | SpaceWait::OtherShards) => {}
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
        self.space_gate.borrow_mut().class_was_served(write_class);
        self.refused_before.set(self.next.get());
        let refused = std::mem::take(self.queues.borrow_mut().of_mut(write_class));
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
        let queues = self.queues.borrow();
        let payload: u32 = queues.of(write_class).iter().take(8).map(super::Request::payload).sum();
        // One header block is enough for every record that a mirror is chosen for.
        let small = queues.of(write_class).len() <= 8 && prefers_mirror(self.geometry.scheme, 1 + payload);
        if small { SegmentClass::Mirror } else { SegmentClass::Hot }
    }

    /// Builds a record at the end of a segment and starts to write it.
    fn write_record(
        self: &Rc<Self>,
        segment: SegmentId,
        room: AppendRoom,
        scheme: Scheme,
        batch: Batch,
        write_class: WriteClass,
    ) {
        self.space_gate.borrow_mut().class_was_served(write_class);
        assert!(!batch.requests.is_empty() && batch.header_blocks > 0, "a record holds a request");
        let sequence = self.next.get();
        let in_flight = self.in_flight.borrow().len() as u64;
        assert_eq!(sequence.get(), self.applied.get().get() + in_flight + 1, "L1: sequences have no gaps");
        assert!(self.durable.get() <= self.applied.get(), "L4: only applied records are durable");
        self.next.set(sequence.next());
        let layout = RecordLayout::new(scheme, room.row, batch.blocks());
        assert!(layout.rows > 0 && layout.rows <= room.rows, "a record fits its segment");
        let incarnation = {
            let mut segments = self.rows.segments.borrow_mut();
            segments.append(segment, layout.rows);
            segments.record(segment).incarnation
        };
        let place = RecordLocation {
            pool: self.identity.pool,
            shard: self.identity.shard,
            segment,
            incarnation,
            row: room.row,
            sequence,
            durable: self.durable.get(),
        };
        let code: Rc<Code> = self.rows.code(scheme);
        let mut builder = StripeBuilder::new(&batch, scheme, &code, layout);
        let rows = builder.build(&place, &self.identity.key);
        let writes = self.start_writes(&place, scheme, &rows);
        let crcs = builder.into_crcs();
        assert_eq!(crcs.len(), batch.payload as usize, "R3: every payload block has a CRC");
        self.count_record(&batch, scheme, layout.rows, write_class);
        let record = Rc::new(PendingRecord {
            sequence,
            segment,
            layout,
            header_blocks: batch.header_blocks,
            crcs,
            batch: std::cell::RefCell::new(batch),
            write_class,
            written: std::cell::Cell::new(false),
        });
        self.in_flight.borrow_mut().push_back(record.clone());
        self.finish_when_written(record, writes);
    }

    /// Starts one write per column that is on a drive in use.
    fn start_writes(&self, place: &RecordLocation, scheme: Scheme, rows: &StripeColumns) -> Writes {
        let segments = self.rows.segments.borrow();
        let write = |column| {
            let cell = segments.cell_at(place.segment, Column::new(column), place.row)?;
            Some((cell.drive, self.rows.drives.write(cell.drive, cell.offset, &[rows.column(column)])?))
        };
        let writes: Writes = (0..scheme.width()).filter_map(write).collect();
        let columns = writes.iter().map(|(drive, _)| *drive);
        assert!(is_distinct(columns), "Z1: two columns of segment {} on one drive", place.segment);
        writes
    }

    /// Finishes a record in a task of its own once its writes have completed.
    fn finish_when_written(self: &Rc<Self>, record: Rc<PendingRecord>, writes: Writes) {
        let log = self.clone();
        let wait = async move {
            let mut results = Results::new();
            for (drive, io) in writes {
                results.push((drive, io.await));
            }
            log.finish(record, results).await;
        };
        self.reactor.spawn(wait).detach();
    }

    /// Finishes a record whose writes have completed. A drive that failed a write is reported as
    /// failed, and the superblocks say so, before the record counts as written (L2).
    async fn finish(&self, record: Rc<PendingRecord>, results: Results) {
        for (drive, result) in results {
            let lost = match result {
                Ok(_) => {
                    self.rows.drives.mark_dirty(drive);
                    Ok(())
                }
                Err(error) => self.link.drive_failed(drive, "a write failed", error).await,
            };
            if let Err(error) = lost {
                return self.fail(&error);
            }
        }
        if !self.has_enough_columns(&record) {
            let message = "too many drives have failed: a record has too few columns";
            return self.fail(&Error::new(ErrorKind::PoolFailed, message));
        }
        self.written(&record);
    }

    /// Returns true if a record's rows can be read: k of its columns were written to drives in use.
    fn has_enough_columns(&self, record: &PendingRecord) -> bool {
        let segments = self.rows.segments.borrow();
        let scheme = segments.scheme(record.segment);
        let online = (0..scheme.width()).filter(|column| {
            let cell = segments.cell_at(record.segment, Column::new(*column), record.layout.row);
            cell.is_some_and(|cell| self.rows.drives.is_online(cell.drive))
        });
        online.count() >= usize::from(scheme.data())
    }

    fn written(&self, record: &PendingRecord) {
        assert!(record.sequence > self.applied.get(), "L2: a record is applied before it is written");
        record.written.set(true);
        self.apply_written();
        self.work.notify();
    }

    /// Applies every written record that has no unwritten one before it (L1).
    pub(super) fn apply_written(&self) {
        loop {
            let record = {
                let mut in_flight = self.in_flight.borrow_mut();
                if !in_flight.front().is_some_and(|flight| flight.written.get()) {
                    return;
                }
                in_flight.pop_front()
            };
            let Some(record) = record else { return };
            match self.failure() {
                Some(error) => self.abandon(&record, &error),
                None => self.apply(record),
            }
        }
    }

    fn apply(&self, record: Rc<PendingRecord>) {
        assert!(self.failure.borrow().is_none(), "L3: no record is applied after a failure");
        assert_eq!(record.sequence, self.applied.get().next(), "L1: records are applied in order");
        let batch = record.batch.take();
        let mut at = ApplyCursor { next_block: record.header_blocks, next_crc: 0 };
        let mut entries = Vec::new();
        for request in &batch.requests {
            let leaves: &[NodeRef] = match &request.effect {
                Effect::Leaves(pins) if !pins.is_empty() => pins,
                _ => &batch.shared_pins,
            };
            let first = entries.len();
            for item in &request.items {
                self.apply_item(&record, &mut at, item, leaves, &mut entries);
            }
            match &request.effect {
                Effect::Nodes(nodes) => {
                    let stored = entries.split_off(first);
                    assert_eq!(nodes.len(), stored.len(), "R3: every stored node has an entry");
                    nodes.iter().zip(stored).for_each(|(node, entry)| self.ledger.node_stored(*node, entry));
                }
                Effect::Merge { from, into } => self.ledger.merge(from, into),
                Effect::Leaves(_) | Effect::Nothing => {}
            }
        }
        assert_eq!(at.next_crc, record.crcs.len(), "R3: the items list the whole payload");
        assert_eq!(at.next_block, batch.blocks(), "R3: the items list the whole payload");
        self.applied.set(record.sequence);
        if self.rows.drives.all_durable() {
            self.durable.set(record.sequence);
        }
        {
            let mut segments = self.rows.segments.borrow_mut();
            segments.record_applied(record.segment, record.layout.end());
            if self.rows.drives.all_durable() {
                segments.flushed(&[(record.segment, record.layout.end())]);
            }
            let reserved = self.ledger.map.borrow().unused_reservations();
            self.pacer.space.set_usage(self.identity.shard.index(), segments.live_blocks(), reserved);
        }
        self.answer(record.write_class, batch, entries);
    }

    /// Applies one item to the map; collects the entries of nodes and table blocks.
    fn apply_item(
        &self,
        record: &PendingRecord,
        at: &mut ApplyCursor,
        item: &Item,
        leaves: &[NodeRef],
        entries: &mut Vec<format::MapEntry>,
    ) {
        let count = item.payload();
        let crcs = part(&record.crcs, at.next_crc..at.next_crc + count as usize, "R3");
        let payload = Payload { segment: record.segment, layout: record.layout, first: at.next_block, crcs };
        at.next_block += count;
        at.next_crc += count as usize;
        match *item {
            Item::Write { block, .. } => self.ledger.write(leaves, block, &payload),
            Item::Move { block, from, .. } => self.ledger.relocate(leaves, block, from, &payload),
            Item::Unmap { block, count, mode, .. } => self.ledger.unmap(leaves, block, count, mode),
            Item::Node { .. } | Item::Table { .. } => entries.push(payload.entry(0)),
            Item::DropLayer { layer } => self.ledger.drop_layer(layer),
            // Changes two layers; applied by the request's effect, which has the leaves of both.
            Item::Merge { .. } => {}
        }
    }

    /// Answers the writers of an applied record; those of table blocks get their entries.
    fn answer(&self, write_class: WriteClass, batch: Batch, entries: Vec<format::MapEntry>) {
        // The front part of a split request has no reply channel and is not counted.
        let whole = batch.requests.iter().filter(|request| request.reply.is_some()).count();
        self.ledger.unpin(&batch.shared_pins);
        let mut entries = entries.into_iter();
        for request in batch.requests {
            match &request.effect {
                Effect::Leaves(pins) => self.ledger.unpin(pins),
                Effect::Merge { from, into } => {
                    self.ledger.unpin(from);
                    self.ledger.unpin(into);
                }
                Effect::Nodes(_) | Effect::Nothing => {}
            }
            let tables = request.items.iter().filter(|item| matches!(item, Item::Table { .. })).count();
            let own: Vec<_> = entries.by_ref().take(tables).collect();
            assert_eq!(own.len(), tables, "R3: every table block has an entry");
            if let Some(reply) = request.reply {
                reply.send(Ok(own));
            }
        }
        assert!(entries.next().is_none(), "R3: every entry belongs to a table block or a node");
        self.count_answered(write_class, whole);
    }

    /// Answers the writers of a record that will not be applied (L3).
    fn abandon(&self, record: &PendingRecord, error: &Error) {
        self.rows.segments.borrow_mut().record_applied(record.segment, record.layout.end());
        let batch = record.batch.take();
        self.ledger.unpin(&batch.shared_pins);
        for request in batch.requests {
            self.refuse(request, error);
        }
    }

    fn count_record(&self, batch: &Batch, scheme: Scheme, rows: u32, write_class: WriteClass) {
        let mut counters = self.counters.get();
        let (payload, header) = (u64::from(batch.payload), u64::from(batch.header_blocks));
        let cells = u64::from(rows) * u64::from(scheme.data());
        assert!(cells >= payload + header, "R2: a record's rows hold its header and payload");
        match write_class {
            WriteClass::Checkpoint => counters.map_blocks += payload,
            WriteClass::Trim | WriteClass::Freeing => counters.freeing_blocks += payload,
            WriteClass::User => counters.user_blocks += payload,
            WriteClass::Cold => counters.moved_blocks += payload,
        }
        counters.header_blocks += header;
        counters.padding_blocks += cells - payload - header;
        counters.parity_blocks += u64::from(rows) * u64::from(scheme.parity());
        counters.records += 1;
        self.counters.set(counters);
        if write_class == WriteClass::User {
            self.pacer.on_user_write(cells, self.rows.segments.borrow().freed_count());
        }
        self.blocks_since_checkpoint.set(self.blocks_since_checkpoint.get() + cells);
        if self.blocks_since_checkpoint.get() >= self.checkpoint_blocks {
            self.checkpoint_due.notify();
        }
    }
}

/// Returns true if no drive occurs twice.
fn is_distinct(drives: impl Iterator<Item = DriveIndex> + Clone) -> bool {
    let mut rest = drives;
    while let Some(drive) = rest.next() {
        if rest.clone().any(|other| other == drive) {
            return false;
        }
    }
    true
}

/// The position in a record's payload up to which its items were applied.
struct ApplyCursor {
    next_block: u32,
    next_crc: usize,
}
