//! Searches the headers of the log for blocks whose map entries are unknown.
//!
//! A block that lives is named by the header of the record that it lies in, and a segment in which something lives is not reused. So the
//! newest header that names the block leads to it, unless the block was unmap_mode or deleted since, which the log may no longer tell: what
//! is found may be stale. Always true: only blocks whose entry is unknown are looked for.

use format::{Item, LayerId, MapEntry, SegmentId, Sequence};

use super::{EntryRun, SalvageShard};
use crate::ledger::Payload;
use crate::map::MissingNode;
use crate::shard::headers::{HeaderReader, ScannedRecord};

impl SalvageShard {
    /// Looks at every node of the map, so that all that cannot be read are known.
    pub(crate) async fn discover(&self) {
        let layers = self.ledger.map.borrow().layer_ids();
        for layer in layers {
            let mut next = 0;
            while next < format::limits::LAYER_BLOCKS_MAX {
                next = match self.stretch_of(layer, next).await {
                    EntryRun::Leaf => next + super::rest_of_leaf(next),
                    EntryRun::Same { until, .. } => until,
                };
            }
        }
    }

    /// True if entries are unknown.
    pub(crate) fn has_unknown(&self) -> bool {
        !self.nodes.borrow().is_empty() || self.lacks_layers()
    }

    /// Searches the log for blocks whose entries are unknown, once [`SalvageShard::discover`] has found those.
    pub(crate) async fn search(&self) {
        let ids: Vec<SegmentId> = self.rows.segments.borrow().ids().collect();
        let mut unmapped = Vec::new();
        for id in ids {
            let record = self.rows.segments.borrow().record(id);
            let mut reader = HeaderReader::new(&self.rows, &self.identity, id, &record);
            loop {
                match reader.next().await {
                    Ok(Some(found)) => self.take(&found, &mut unmapped),
                    _ if reader.row().is_some() && reader.resume().await => {}
                    _ => break,
                }
            }
            self.settle_reads();
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

    fn take(&self, record: &ScannedRecord, unmapped: &mut Vec<(Sequence, LayerId, std::ops::Range<u64>)>) {
        let place = &record.header.location;
        let header_blocks = u32::from(record.header.header_blocks);
        let mut first = header_blocks;
        for item in &record.header.items {
            let skip = (first - header_blocks) as usize;
            let crcs = record.header.crcs.get(skip..skip + item.payload() as usize).unwrap_or(&[]);
            let payload = Payload { segment: place.segment, layout: record.layout, first, crcs };
            first += item.payload();
            match *item {
                Item::Write { layer, block, .. } | Item::Move { layer, block, .. } => {
                    for layer in self.merged_into(layer) {
                        for (index, at) in (0..).zip(block.get()..).take(crcs.len()) {
                            self.offer(place.sequence, layer, at, payload.entry(index));
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

    /// The layers in which a block may be that a header says is in `layer`.
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

    fn offer(&self, sequence: Sequence, layer: LayerId, block: u64, entry: MapEntry) {
        if !self.may_be_unknown(layer, block) {
            return;
        }
        let mut candidates = self.candidates.borrow_mut();
        let known = candidates.entry((layer, block)).or_insert((sequence, entry));
        if known.0 < sequence {
            *known = (sequence, entry);
        }
    }

    fn may_be_unknown(&self, layer: LayerId, block: u64) -> bool {
        let nodes = self.nodes.borrow();
        let is_lost = |level| nodes.contains_key(&MissingNode::covering(layer, block, level));
        let is_listed = || self.ledger.map.borrow().layer_ids().contains(&layer);
        (0..super::read::LEVELS).any(is_lost) || self.lacks_layers() && !is_listed()
    }

    /// The first block at or behind `block` that the log's headers name, of a layer.
    pub(super) fn next_candidate(&self, layer: LayerId, block: u64) -> Option<u64> {
        let candidates = self.candidates.borrow();
        candidates.range((layer, block)..=(layer, u64::MAX)).next().map(|((_, block), _)| *block)
    }
}
