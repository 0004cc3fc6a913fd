//! The end of a record: its writes complete, it is applied in order, and its writers are answered.

use std::rc::Rc;

use format::{Item, Scheme};

use super::Log;
use super::appender::{WriteResults, Writes};
use super::records::PendingRecord;
use super::request::{Batch, Effect, WriteClass};
use crate::error::{Error, ErrorKind};
use crate::invariant::part;
use crate::ledger::Payload;
use crate::map::NodeRef;

impl Log {
    /// Finishes a record in a task of its own once its writes have completed.
    pub(super) fn finish_when_written(self: &Rc<Self>, record: Rc<PendingRecord>, writes: Writes) {
        let log = self.clone();
        let wait = async move {
            let mut results = WriteResults::new();
            for (drive, io) in writes {
                results.push((drive, io.await));
            }
            log.finish(record, results).await;
        };
        self.reactor.spawn(wait).detach();
    }

    /// Finishes a record whose writes have completed. A drive that failed a write is reported as
    /// failed, and the superblocks say so, before the record counts as written (L2).
    async fn finish(&self, record: Rc<PendingRecord>, results: WriteResults) {
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
        if !self.appender.has_enough_columns(&record) {
            let message = "too many drives have failed: a record has too few columns";
            return self.fail(&Error::new(ErrorKind::PoolFailed, message));
        }
        self.written(&record);
    }

    fn written(&self, record: &PendingRecord) {
        self.appender.records.borrow().mark_written(record);
        self.apply_written();
        self.work.notify();
    }

    /// Applies every written record that has no unwritten one before it (L1).
    pub(super) fn apply_written(&self) {
        loop {
            let record = self.appender.records.borrow_mut().pop_written();
            let Some(record) = record else { return };
            match self.failure() {
                Some(error) => self.abandon(&record, &error),
                None => self.apply(record),
            }
        }
    }

    fn apply(&self, record: Rc<PendingRecord>) {
        assert!(self.failure.borrow().is_none(), "L3: no record is applied after a failure");
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
        let all_durable = self.rows.drives.all_durable();
        {
            let mut records = self.appender.records.borrow_mut();
            records.set_applied(&record);
            if all_durable {
                records.set_durable(record.sequence);
            }
        }
        {
            let mut segments = self.rows.segments.borrow_mut();
            segments.record_applied(record.segment, record.layout.end());
            if all_durable {
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
        assert!(self.failure.borrow().is_some(), "L3: only a failed log abandons records");
        self.rows.segments.borrow_mut().record_applied(record.segment, record.layout.end());
        let batch = record.batch.take();
        self.ledger.unpin(&batch.shared_pins);
        for request in batch.requests {
            self.refuse(request, error);
        }
    }

    /// Counts a record whose writes have begun.
    pub(super) fn count_record(&self, record: &PendingRecord, scheme: Scheme) {
        let mut counters = self.counters.get();
        let (payload, header) = (record.crcs.len() as u64, u64::from(record.header_blocks));
        let (rows, write_class) = (record.layout.rows, record.write_class);
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
        self.checkpoints.on_blocks(cells);
    }
}

/// The position in a record's payload up to which its items were applied.
struct ApplyCursor {
    next_block: u32,
    next_crc: usize,
}
