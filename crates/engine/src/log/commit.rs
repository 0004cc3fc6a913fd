//! The commit task: requests into records, records onto the drives, landing in order.

use std::rc::Rc;

use codec::Code;
use format::limits::BLOCK;
use format::{Column, DriveIndex, Item, RecordLocation, Scheme, SegmentClass, SegmentId};
use reactor::IoResult;
use smallvec::SmallVec;

use super::pace::TRIES_MAX;
use super::request::{Batch, REQUEST_BLOCKS_MAX, prefers_mirror};
use super::stage::{Rows, Stage};
use super::{Asked, Effect, Flight, Log, Stream};
use crate::error::{Error, ErrorKind};
use crate::geometry::RecordLayout;
use crate::in_flight::InFlight;
use crate::ledger::Payload;
use crate::map::NodeRef;
use crate::segments::AppendRoom;

/// The streams that take turns with the checkpoint's.
const OTHERS: [Stream; 4] = [Stream::User, Stream::Trim, Stream::Cold, Stream::Freeing];
/// Times as many full records as others may be in flight.
const FULL_DEPTH: usize = 4;

type Writes = SmallVec<[(DriveIndex, InFlight); 8]>;
type Results = SmallVec<[(DriveIndex, IoResult); 8]>;

impl Log {
    /// Commits what is queued, until [`Log::stop`]. One task a log.
    pub(crate) async fn run(self: Rc<Self>) {
        loop {
            self.work.notified().await;
            while let Some(stream) = self.next_stream() {
                if !self.may_start(stream) || self.failure().is_some() {
                    break;
                }
                self.took_turn(stream);
                self.commit_one(stream).await;
            }
            if self.stopping.get() && (self.is_idle() || self.failure().is_some()) {
                return self.has_ended();
            }
        }
    }

    /// True if one more record may be in flight. With [`Log::depth`] of them, a record that could still grow waits for more to
    /// go into it; one that is full has nothing to wait for.
    fn may_start(&self, stream: Stream) -> bool {
        let in_flight = self.in_flight.borrow().len();
        if in_flight < self.depth {
            return true;
        }
        let full = || {
            let queues = self.queues.borrow();
            let mut left = REQUEST_BLOCKS_MAX;
            queues.of(stream).iter().any(|request| {
                left = left.saturating_sub(request.payload());
                left == 0
            })
        };
        in_flight < FULL_DEPTH * self.depth && full()
    }

    /// The queue to serve next: the checkpoint's and the others' in turns, so that neither holds the other up.
    fn next_stream(&self) -> Option<Stream> {
        let queues = self.queues.borrow();
        let waits = self.waits.get();
        let held_back =
            |stream: Stream| stream == Stream::User && !self.pace.may_write() && !self.stopping.get();
        let ready = |stream: Stream| !queues.of(stream).is_empty() && !held_back(stream);
        let after = OTHERS.iter().position(|other| *other == self.last_other.get()).map_or(0, |at| at + 1);
        let mut others = OTHERS.iter().cycle().skip(after).take(OTHERS.len());
        let waits = |stream: Stream| *waits.of(stream) && !self.goes_ahead(stream);
        let other = others.find(|stream| ready(**stream) && !waits(**stream)).copied();
        let checkpoint = ready(Stream::Checkpoint).then_some(Stream::Checkpoint);
        if self.others_turn.get() { other.or(checkpoint) } else { checkpoint.or(other) }
    }

    /// Remembers whose turn it is next.
    fn took_turn(&self, stream: Stream) {
        self.others_turn.set(stream == Stream::Checkpoint);
        if stream != Stream::Checkpoint {
            self.last_other.set(stream);
        }
    }

    /// Writes one record from a queue, or opens or seals a segment on the way to it.
    async fn commit_one(self: &Rc<Self>, stream: Stream) {
        let class = self.class_for(stream);
        // Before any room is used: what is left in the open segments by now is the checkpoint's.
        if self.recent_is_full(stream.privilege()) {
            return self.wait_or_refuse(stream, &Error::new(ErrorKind::NoSpace, "no checkpoint can be made"));
        }
        let privilege = self.privilege(stream);
        if let Some((segment, room)) = self.current(class, privilege)
            && room.rows > 0
        {
            let scheme = self.scheme_of(class);
            let atomic = self.geometry.atomic_blocks();
            // Whoever comes after the last that may be in flight waits anyway, and is gathered.
            let more_to_come = self.in_flight.borrow().len() + 1 >= self.depth;
            let batch = {
                let mut queues = self.queues.borrow_mut();
                Batch::gather(queues.of_mut(stream), scheme, room.rows, atomic, more_to_come)
            };
            if !batch.requests.is_empty() {
                self.ledger.map.borrow_mut().repin(&batch.borrowed);
                self.write_record(segment, room, scheme, batch, stream);
                if matches!(class, SegmentClass::Hot | SegmentClass::Mirror) {
                    self.open_ahead(class);
                }
                return;
            }
        }
        match self.open_next(class, privilege).await {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NoSpace => self.wait_for_space(stream, &error),
            Err(error) => self.fail(&error),
        }
    }

    /// Lets a stream wait for a checkpoint; if none can be made, or this is one, says so instead.
    fn wait_or_refuse(&self, stream: Stream, error: &Error) {
        // The checkpoint after what is being compacted waits for that.
        let waits_for_it = stream == Stream::Checkpoint || stream == Stream::Cold && self.compacting.get();
        if waits_for_it || self.checkpoint_failure.borrow().is_some() || self.unserved.get() {
            return self.refuse_all(stream, error);
        }
        let needs_less = |other: &&Stream| other.privilege() <= stream.privilege();
        OTHERS.iter().filter(needs_less).for_each(|stream| self.waits_now(*stream));
        self.checkpoint_due.notify();
    }

    /// True for what the next checkpoint waits for: it cannot wait for one.
    fn goes_ahead(&self, stream: Stream) -> bool {
        stream == Stream::Checkpoint || stream == Stream::Cold && self.compacting.get()
    }

    fn waits_now(&self, stream: Stream) {
        let mut waits = self.waits.get();
        *waits.of_mut(stream) = true;
        self.waits.set(waits);
    }

    /// There is no free segment for a stream. What was freed comes with a checkpoint; beyond that the cleaner makes space,
    /// unless it has said that it cannot, and those of the other shards too.
    fn wait_for_space(self: &Rc<Self>, stream: Stream, error: &Error) {
        if self.unserved.get() {
            // Nobody makes space any more.
            return self.refuse_all(stream, error);
        }
        match self.pace.found_none(stream) {
            // Whether there is nothing to clean shows when the cleaner has looked for this one.
            1 => self.exhausted.set(false),
            // What cleaning gains goes to headers and checkpoints.
            tries if tries > TRIES_MAX => return self.refuse_all(stream, error),
            _ => {}
        }
        let cleanable = !matches!(stream, Stream::Checkpoint | Stream::Cold);
        if cleanable {
            self.pace.wake();
        }
        let coming = self.rows.segments.borrow_mut().free_emptied() > 0
            || self.rows.segments.borrow().freed_count() > 0;
        if coming {
            return self.wait_or_refuse(stream, error);
        }
        if !cleanable {
            return self.refuse_all(stream, error);
        }
        if self.exhausted.replace(false) {
            match self.asked.replace(Asked::Pending) {
                Asked::No => self.ask_others(),
                Asked::Pending => {}
                Asked::InVain => {
                    self.asked.set(Asked::No);
                    return self.refuse_all(stream, error);
                }
            }
        }
        self.waits_now(stream);
    }

    /// Has the other shards clean, before anybody is refused.
    fn ask_others(self: &Rc<Self>) {
        let log = self.clone();
        let ask = async move {
            let gained = log.link.clean_other_shards().await;
            log.asked.set(if gained { Asked::No } else { Asked::InVain });
            log.exhausted.set(!gained);
            log.look_again();
        };
        self.reactor.spawn(ask).detach();
    }

    /// Answers everything that a stream has queued with an error.
    fn refuse_all(&self, stream: Stream, error: &Error) {
        self.pace.served(stream);
        self.refused_before.set(self.next.get());
        let refused = std::mem::take(self.queues.borrow_mut().of_mut(stream));
        let count = refused.iter().filter(|request| request.reply.is_some()).count();
        for request in refused {
            self.refuse(request, error);
        }
        self.count_answered(stream, count);
    }

    /// Which kind of segment the next record of a stream goes to.
    fn class_for(&self, stream: Stream) -> SegmentClass {
        match stream {
            Stream::Cold => return SegmentClass::Cold,
            Stream::Checkpoint => return SegmentClass::Map,
            Stream::User | Stream::Trim | Stream::Freeing => {}
        }
        let queues = self.queues.borrow();
        let payload: u32 = queues.of(stream).iter().take(8).map(super::Request::payload).sum();
        // One header block does for anything that a mirror is chosen for.
        let small = queues.of(stream).len() <= 8 && prefers_mirror(self.geometry.scheme, 1 + payload);
        if small { SegmentClass::Mirror } else { SegmentClass::Hot }
    }

    /// Lays out a record at the end of a segment and starts writing it.
    fn write_record(
        self: &Rc<Self>,
        segment: SegmentId,
        room: AppendRoom,
        scheme: Scheme,
        batch: Batch,
        stream: Stream,
    ) {
        self.pace.served(stream);
        let sequence = self.next.get();
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
        let mut stage = Stage::new(&batch, scheme, &code, layout);
        let writes = if self.write_in_place(&place, scheme, &mut stage) {
            Writes::new()
        } else {
            let rows = stage.lay_out(stage.rows(), &place, &self.identity.key);
            self.start_writes(&place, scheme, &rows)
        };
        let crcs = stage.into_crcs();
        self.count(&batch, scheme, layout.rows, stream);
        let flight = Rc::new(Flight {
            sequence,
            segment,
            layout,
            header_blocks: batch.header_blocks,
            crcs,
            batch: std::cell::RefCell::new(batch),
            stream,
            written: std::cell::Cell::new(false),
        });
        self.in_flight.borrow_mut().push_back(flight.clone());
        self.finish_or_wait(flight, writes);
    }

    /// Writes a record where it lies, if all columns are memory of this process: only its first rows are staged, nobody has to wait, and
    /// what was written is waited for once. False, and nothing is written, if they are not.
    fn write_in_place(&self, place: &RecordLocation, scheme: Scheme, stage: &mut Stage<'_>) -> bool {
        let (held, rows) = (stage.held(), stage.rows());
        let segments = self.rows.segments.borrow();
        let cells = (0..scheme.width())
            .filter_map(|column| segments.cell_at(place.segment, Column::new(column), place.row))
            .map(|cell| (cell.drive, cell.offset));
        let written = self.rows.drives.write_in_place(cells, rows * BLOCK, |columns| {
            if columns.len() < usize::from(scheme.width()) {
                return false;
            }
            stage.hand_out(|column, row, cell| match columns.get_mut(column) {
                Some(column) => column.store(row * BLOCK, cell),
                None => panic!("a record has as many columns as its segment"),
            });
            let first = stage.lay_out(held, place, &self.identity.key);
            columns.iter_mut().enumerate().for_each(|(index, column)| column.store(0, first.bytes(index)));
            true
        });
        written == Some(true)
    }

    /// Starts one write for each column that is on a drive in use.
    fn start_writes(&self, place: &RecordLocation, scheme: Scheme, rows: &Rows) -> Writes {
        let segments = self.rows.segments.borrow();
        let write = |column| {
            let cell = segments.cell_at(place.segment, Column::new(column), place.row)?;
            Some((cell.drive, self.rows.drives.write(cell.drive, cell.offset, &[rows.column(column)])?))
        };
        (0..scheme.width()).filter_map(write).collect()
    }

    /// Finishes a record at once if its writes are done (memory drives), else in a task of its own.
    fn finish_or_wait(self: &Rc<Self>, flight: Rc<Flight>, mut writes: Writes) {
        if writes.iter().all(|(_, io)| io.is_done()) {
            let results: Results =
                writes.iter_mut().filter_map(|(drive, io)| Some((*drive, io.try_take()?))).collect();
            if results.iter().all(|(_, result)| result.is_ok()) && self.has_enough_columns(&flight) {
                self.written(&flight);
                return;
            }
            let log = self.clone();
            self.reactor.spawn(async move { log.finish(flight, results).await }).detach();
            return;
        }
        let log = self.clone();
        let wait = async move {
            let mut results = Results::new();
            for (drive, io) in writes {
                results.push((drive, io.await));
            }
            log.finish(flight, results).await;
        };
        self.reactor.spawn(wait).detach();
    }

    /// Ends a record whose writes have ended. A drive that failed one is lost, and known to be lost by the superblocks,
    /// before the record counts as written (L2).
    async fn finish(&self, flight: Rc<Flight>, results: Results) {
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
        if !self.has_enough_columns(&flight) {
            let message = "too many drives are lost: a record has too few columns";
            return self.fail(&Error::new(ErrorKind::PoolFailed, message));
        }
        self.written(&flight);
    }

    /// True if a record's rows can be read: k of its columns are on drives in use that took them.
    fn has_enough_columns(&self, flight: &Flight) -> bool {
        let segments = self.rows.segments.borrow();
        let scheme = segments.scheme(flight.segment);
        let held = (0..scheme.width()).filter(|column| {
            let cell = segments.cell_at(flight.segment, Column::new(*column), flight.layout.row);
            cell.is_some_and(|cell| self.rows.drives.is_online(cell.drive))
        });
        held.count() >= usize::from(scheme.data())
    }

    fn written(&self, flight: &Flight) {
        flight.written.set(true);
        self.land_written();
        self.work.notify();
    }

    /// Lands every record that is written and has no unwritten one before it (L1).
    pub(super) fn land_written(&self) {
        loop {
            let flight = {
                let mut in_flight = self.in_flight.borrow_mut();
                if !in_flight.front().is_some_and(|flight| flight.written.get()) {
                    return;
                }
                in_flight.pop_front()
            };
            let Some(flight) = flight else { return };
            match self.failure() {
                Some(error) => self.abandon(&flight, &error),
                None => self.land(flight),
            }
        }
    }

    fn land(&self, flight: Rc<Flight>) {
        assert_eq!(flight.sequence, self.applied.get().next(), "L1: records land in order");
        let batch = flight.batch.take();
        let mut at = Landing { next_block: flight.header_blocks, next_crc: 0 };
        let mut entries = Vec::new();
        for request in &batch.requests {
            let leaves: &[NodeRef] = match &request.effect {
                Effect::Leaves(pins) if !pins.is_empty() => pins,
                _ => &batch.borrowed,
            };
            let first = entries.len();
            for item in &request.items {
                self.land_item(&flight, &mut at, item, leaves, &mut entries);
            }
            match &request.effect {
                Effect::Nodes(nodes) => {
                    let stored = entries.split_off(first);
                    nodes.iter().zip(stored).for_each(|(node, entry)| self.ledger.node_stored(*node, entry));
                }
                Effect::Merge { from, into } => self.ledger.merge(from, into),
                Effect::Leaves(_) | Effect::Nothing => {}
            }
        }
        self.applied.set(flight.sequence);
        if self.rows.drives.all_durable() {
            self.durable.set(flight.sequence);
        }
        {
            let mut segments = self.rows.segments.borrow_mut();
            segments.record_applied(flight.segment, flight.layout.end());
            if self.rows.drives.all_durable() {
                segments.flushed(&[(flight.segment, flight.layout.end())]);
            }
            let promised = self.ledger.map.borrow().unused_reservations();
            self.pace.space.set_usage(self.identity.shard.index(), segments.live_blocks(), promised);
        }
        self.answer(flight.stream, batch, entries);
    }

    /// Lets one item change the map; collects the entries of nodes and table blocks.
    fn land_item(
        &self,
        flight: &Flight,
        at: &mut Landing,
        item: &Item,
        leaves: &[NodeRef],
        entries: &mut Vec<format::MapEntry>,
    ) {
        let count = item.payload();
        let crcs = flight.crcs.get(at.next_crc..at.next_crc + count as usize).unwrap_or(&[]);
        let payload = Payload { segment: flight.segment, layout: flight.layout, first: at.next_block, crcs };
        at.next_block += count;
        at.next_crc += count as usize;
        match *item {
            Item::Write { block, .. } => self.ledger.write(leaves, block, &payload),
            Item::Move { block, from, .. } => self.ledger.moved(leaves, block, from, &payload),
            Item::Unmap { block, count, mode, .. } => self.ledger.unmap(leaves, block, count, mode),
            Item::Node { .. } | Item::Table { .. } => entries.push(payload.entry(0)),
            Item::DropLayer { layer } => self.ledger.drop_layer(layer),
            // Of two layers: the request has the leaves of both.
            Item::Merge { .. } => {}
        }
    }

    /// Tells a landed record's writers, those of table blocks with their entries.
    fn answer(&self, stream: Stream, batch: Batch, entries: Vec<format::MapEntry>) {
        // A front part split off a request is no request of its own.
        let whole = batch.requests.iter().filter(|request| request.reply.is_some()).count();
        self.ledger.unpin(&batch.borrowed);
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
            if let Some(reply) = request.reply {
                reply.send(Ok(own));
            }
        }
        self.count_answered(stream, whole);
    }

    /// Answers the writers of a record that will not land (L3).
    fn abandon(&self, flight: &Flight, error: &Error) {
        self.rows.segments.borrow_mut().record_applied(flight.segment, flight.layout.end());
        let batch = flight.batch.take();
        self.ledger.unpin(&batch.borrowed);
        for request in batch.requests {
            self.refuse(request, error);
        }
    }

    fn count(&self, batch: &Batch, scheme: Scheme, rows: u32, stream: Stream) {
        let mut counters = self.counters.get();
        let (payload, header) = (u64::from(batch.payload), u64::from(batch.header_blocks));
        let cells = u64::from(rows) * u64::from(scheme.data());
        match stream {
            Stream::Checkpoint => counters.map_blocks += payload,
            Stream::Trim | Stream::Freeing => counters.freeing_blocks += payload,
            Stream::User => counters.user_blocks += payload,
            Stream::Cold => counters.moved_blocks += payload,
        }
        counters.header_blocks += header;
        counters.padding_blocks += cells - payload - header;
        counters.parity_blocks += u64::from(rows) * u64::from(scheme.parity());
        counters.records += 1;
        self.counters.set(counters);
        if stream == Stream::User {
            self.pace.user_wrote(cells, self.rows.segments.borrow().freed_count());
        }
        self.blocks_since_checkpoint.set(self.blocks_since_checkpoint.get() + cells);
        if self.blocks_since_checkpoint.get() >= self.checkpoint_blocks {
            self.checkpoint_due.notify();
        }
    }
}

/// How far into a record's payload landing has come.
struct Landing {
    next_block: u32,
    next_crc: usize,
}
