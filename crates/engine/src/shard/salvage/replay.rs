//! Replays the records behind the checkpoint into a map with unreadable nodes.
//!
//! Always true: a record changes the map as it does in `shard/replay.rs`, and an unknown entry
//! stays unknown unless the record determines its block. Live counts are not updated.

use format::{Item, LayerBlock, LayerId, MapEntry, NODE_ENTRIES, UnmapMode};

use super::{EntryRun, SalvageShard};
use crate::invariant::{element, part};
use crate::ledger::Payload;
use crate::map::{NodeRef, Pins};
use crate::shard::LEAF_BLOCKS;
use crate::shard::headers::ScannedRecord;

impl SalvageShard {
    /// Applies a record to the map.
    pub(super) async fn replay(&self, record: &ScannedRecord) {
        let place = &record.header.location;
        let header_blocks = u32::from(record.header.header_blocks);
        let mut first = header_blocks;
        for item in &record.header.items {
            let count = item.payload();
            let skip = (first - header_blocks) as usize;
            let crcs = part(&record.header.crcs, skip..skip + count as usize, "R3");
            let payload = Payload { segment: place.segment, layout: record.layout, first, crcs };
            self.replay_item(item, &payload).await;
            first += count;
        }
    }

    async fn replay_item(&self, item: &Item, payload: &Payload<'_>) {
        let count = u64::from(item.payload());
        match *item {
            Item::Write { layer, block, .. } => {
                let leaves = self.pin_leaves(layer, block.get(), count).await;
                self.for_each(&leaves, block, payload, |_, _| true);
                self.ledger.unpin(&leaves);
            }
            Item::Move { layer, block, from, .. } => {
                let leaves = self.pin_existing(layer, block.get(), count).await;
                self.for_each(&leaves, block, payload, |index, entry| {
                    let crc = element(payload.crcs, index as usize, "R3");
                    entry == MapEntry::block(from.plus_rows(index), crc)
                });
                self.ledger.unpin(&leaves);
            }
            Item::Unmap { layer, block, count, mode } => self.unmap(layer, block, count, mode).await,
            Item::DropLayer { layer } => self.ledger.map.borrow_mut().forget_layer(layer),
            Item::Merge { from, into, block, count } => {
                self.merge(from, into, block.get(), block.get() + u64::from(count)).await;
            }
            Item::Node { .. } | Item::Table { .. } => {}
        }
    }

    /// Points the blocks of an item that are in these leaves at its payload, where `accepts`
    /// accepts their index in the item and their entry.
    fn for_each(
        &self,
        leaves: &[NodeRef],
        block: LayerBlock,
        payload: &Payload<'_>,
        accepts: impl Fn(u32, MapEntry) -> bool,
    ) {
        let mut map = self.ledger.map.borrow_mut();
        for (index, at) in (0..).zip(block.get()..).take(payload.crcs.len()) {
            let start = at - at % LEAF_BLOCKS;
            let Some(leaf) = leaves.iter().find(|leaf| map.leaf_start(**leaf) == start) else { continue };
            if accepts(index, map.entry(*leaf, slot(at))) {
                map.put_uncounted(*leaf, slot(at), payload.entry(index));
            }
        }
    }

    async fn pin_existing(&self, layer: LayerId, block: u64, count: u64) -> Pins {
        let mut leaves = Pins::new();
        self.walk(|map| map.prepare_unmap(layer, block, count, &mut leaves)).await;
        leaves
    }

    async fn unmap(&self, layer: LayerId, block: LayerBlock, count: u64, mode: UnmapMode) {
        let (leaves, new) = match mode {
            UnmapMode::Absent => (self.pin_existing(layer, block.get(), count).await, MapEntry::ABSENT),
            UnmapMode::Zero => (self.pin_leaves(layer, block.get(), count).await, MapEntry::ZERO),
        };
        let end = block.get() + count;
        let mut map = self.ledger.map.borrow_mut();
        for leaf in &leaves {
            let start = map.leaf_start(*leaf);
            for at in start.max(block.get())..(start + LEAF_BLOCKS).min(end) {
                map.put_uncounted(*leaf, slot(at), new);
            }
        }
        map.unpin(&leaves);
    }

    /// Moves the entries of one layer into another, where that has none; unknown ones too.
    async fn merge(&self, from: LayerId, into: LayerId, block: u64, end: u64) {
        self.merged.borrow_mut().insert(from, into);
        let mut next = block;
        while next < end {
            let start = next - next % LEAF_BLOCKS;
            match self.layer_entry_run(from, next).await {
                EntryRun::Same { until, entry } if !entry.is_unknown() => next = until,
                _ => {
                    self.merge_leaf(from, into, start).await;
                    next = start + LEAF_BLOCKS;
                }
            }
        }
    }

    async fn merge_leaf(&self, from: LayerId, into: LayerId, start: u64) {
        let entries = self.entries_of(from, start, NODE_ENTRIES).await;
        let source = self.pin_existing(from, start, LEAF_BLOCKS).await;
        let target = self.pin_leaves(into, start, LEAF_BLOCKS).await;
        let mut map = self.ledger.map.borrow_mut();
        for (slot, entry) in entries.into_iter().enumerate().filter(|(_, entry)| !entry.is_absent()) {
            for leaf in &source {
                map.put_uncounted(*leaf, slot, MapEntry::ABSENT);
            }
            for leaf in &target {
                if map.entry(*leaf, slot).is_absent() {
                    map.put_uncounted(*leaf, slot, entry);
                }
            }
        }
        map.unpin(&source);
        map.unpin(&target);
    }
}

#[allow(clippy::cast_possible_truncation)]
fn slot(at: u64) -> usize {
    at as usize % NODE_ENTRIES
}
