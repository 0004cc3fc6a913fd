//! Searches the headers of the log for blocks with unknown map entries.
//!
//! A live block is named by the header of its record, and a segment with live blocks is not reused.
//! So the newest header that names a block leads to it, unless the block was trimmed or deleted
//! since, which the log may no longer show: the result may be stale. Always true: only blocks with
//! an unknown entry are searched for.

use format::{Item, LayerId, MapEntry, SegmentId, Sequence};

use super::{EntryRun, SalvageShard};
use crate::invariant::part;
use crate::ledger::Payload;
use crate::map::MissingNode;
use crate::shard::headers::{HeaderReader, ScannedRecord};

impl SalvageShard {
    /// Reads every node of the map, so that all unreadable ones are known.
    pub(crate) async fn discover(&self) {
        let layers = self.ledger.map.borrow().layer_ids();
        for layer in layers {
            let mut next = 0;
            while next < format::limits::LAYER_BLOCKS_MAX {
                next = match self.layer_entry_run(layer, next).await {
                    EntryRun::Leaf => next + super::rest_of_leaf(next),
                    EntryRun::Same { until, .. } => until,
                };
            }
        }
    }

    /// Returns true if there are unknown entries.
    pub(crate) fn has_unknown(&self) -> bool {
        !self.nodes.borrow().is_empty() || self.lacks_layers()
    }

    /// Searches the log for blocks with unknown entries, after [`SalvageShard::discover`] has found
    /// these.
    pub(crate) async fn search(&self) {
        let ids: Vec<SegmentId> = self.rows.segments.borrow().ids().collect();
        let mut unmapped = Vec::new();
        for id in ids {
            let record = self.rows.segments.borrow().record(id);
            let mut reader = HeaderReader::new(&self.rows, &self.identity, id, &record);
            loop {
                match reader.next().await {
                    Ok(Some(found)) => self.collect_blocks(&found, &mut unmapped),
                    _ if reader.row().is_some() && reader.skip_to_next().await => {}
                    _ => break,
                }
            }
            self.handle_gone_drives();
        }
        let mut candidates = self.candidates.borrow_mut();
        for (sequence, layer, blocks) in unmapped {
            let within = candidates.range((layer, blocks.start)..(layer, blocks.end));
            let gone: Vec<_> =
                within.filter(|(_, (written, _))| *written < sequence).map(|(at, _)| *at).collect();
            for at in gone {
                candidates.remove(&at);
            }
        }
    }

    fn collect_blocks(
        &self,
        record: &ScannedRecord,
        unmapped: &mut Vec<(Sequence, LayerId, std::ops::Range<u64>)>,
    ) {
        let place = &record.header.location;
        let header_blocks = u32::from(record.header.header_blocks);
        let mut first = header_blocks;
        for item in &record.header.items {
            let skip = (first - header_blocks) as usize;
            let crcs = part(&record.header.crcs, skip..skip + item.payload() as usize, "R3");
            let payload = Payload { segment: place.segment, layout: record.layout, first, crcs };
            first += item.payload();
            match *item {
                Item::Write { layer, block, .. } | Item::Move { layer, block, .. } => {
                    for layer in self.merged_into(layer) {
                        for (index, at) in (0..).zip(block.get()..).take(crcs.len()) {
                            self.add_candidate(place.sequence, layer, at, payload.entry(index));
                        }
                    }
                }
                Item::Unmap { layer, block, count, .. } => {
                    unmapped.push((place.sequence, layer, block.get()..block.get() + count));
                }
                Item::DropLayer { .. } | Item::Merge { .. } | Item::Node { .. } | Item::Table { .. } => {}
            }
        }
    }

    /// Returns the layers that may contain a block that a header assigns to `layer`.
    fn merged_into(&self, layer: LayerId) -> Vec<LayerId> {
        let mut merged_into: Vec<LayerId> = self.ledger.map.borrow().merged_into(layer).to_vec();
        while let Some(last) = merged_into.last()
            && let Some(into) = self.merged.borrow().get(last).copied()
            && !merged_into.contains(&into)
        {
            merged_into.push(into);
        }
        merged_into
    }

    fn add_candidate(&self, sequence: Sequence, layer: LayerId, block: u64, entry: MapEntry) {
        if !self.may_be_unknown(layer, block) {
            return;
        }
        let mut candidates = self.candidates.borrow_mut();
        let newest = candidates.entry((layer, block)).or_insert((sequence, entry));
        if newest.0 < sequence {
            *newest = (sequence, entry);
        }
    }

    fn may_be_unknown(&self, layer: LayerId, block: u64) -> bool {
        let nodes = self.nodes.borrow();
        let is_lost = |level| nodes.contains_key(&MissingNode::covering(layer, block, level));
        let is_listed = || self.ledger.map.borrow().layer_ids().contains(&layer);
        (0..super::read::LEVELS).any(is_lost) || self.lacks_layers() && !is_listed()
    }

    /// Returns the first block of a layer, at or behind `block`, that the log's headers name.
    pub(super) fn next_candidate(&self, layer: LayerId, block: u64) -> Option<u64> {
        let candidates = self.candidates.borrow();
        candidates.range((layer, block)..=(layer, u64::MAX)).next().map(|((_, block), _)| *block)
    }
}
