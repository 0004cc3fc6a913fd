//! A read-only view of a shard with unreadable parts.
//!
//! Used by the verifier and by salvage. Always true: nothing is written; an entry whose map node,
//! layer table or segment cannot be read is unknown, never a hole; bytes that do not match the CRC
//! of their entry are never returned (R1).
//!
//! Must not know: volumes and their names.

mod read;
mod replay;
mod search;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use format::limits::LAYER_BLOCKS_MAX;
use format::{Address, LayerEntry, LayerId, MapEntry, NODE_ENTRIES, Sequence};
use smallvec::SmallVec;

use super::headers::ScannedRecord;
use super::lost_part::{LostPart, LostPartKind};
use super::replay::replay_record;
use super::start::Candidate;
use super::tables::StoredTables;
use super::walk::load_node;
use crate::ledger::Ledger;
use crate::log::Identity;
use crate::map::{EntryRun, Map, MissingNode, Pins};
use crate::row_reader::RowReader;
pub(crate) use read::{BlockState, Probe, StateRun};

/// Minimum number of map nodes kept in memory: enough for all concurrent walks.
const NODES_MIN: usize = 1024;

/// A read-only view of a shard with unreadable parts.
pub(crate) struct SalvageShard {
    identity: Identity,
    purpose: Purpose,
    pub(super) ledger: Ledger,
    pub(super) rows: Rc<RowReader>,
    pub(super) tables: StoredTables,
    /// Cells that a crash left unwritten and the next opening will write.
    pub(super) incomplete: BTreeSet<Address>,
    /// A read of a row with an incomplete cell failed.
    lost_torn_row: Cell<bool>,
    records: usize,
    /// Unreadable parts, except map nodes.
    lost: Vec<LostPart>,
    nodes: RefCell<BTreeMap<MissingNode, LostPart>>,
    /// The live counts of the segments were updated by the replay.
    counted: bool,
    /// Blocks that headers of the log name, for unknown entries.
    candidates: RefCell<BTreeMap<(LayerId, u64), (Sequence, MapEntry)>>,
    /// Layers that were merged into others since the checkpoint.
    merged: RefCell<BTreeMap<LayerId, LayerId>>,
}

/// The purpose of a [`SalvageShard`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Verification: all of the map is kept in memory, and the live counts are updated where
    /// possible.
    Verify,
    /// Reading.
    Read,
}

impl SalvageShard {
    /// Builds the view from a candidate that was examined read-only, and replays its log; `None` if
    /// that was done before.
    pub(crate) async fn of(candidate: &Candidate, purpose: Purpose) -> Option<Self> {
        let parts = candidate.dismantle()?;
        let nodes = match purpose {
            Purpose::Verify => usize::MAX,
            Purpose::Read => candidate.map_nodes().max(NODES_MIN),
        };
        let mut shard = Self {
            identity: candidate.identity(),
            purpose,
            ledger: Ledger::new(Map::new(nodes, usize::MAX), parts.rows.clone()),
            rows: parts.rows,
            tables: parts.tables,
            incomplete: parts.incomplete,
            lost_torn_row: Cell::new(false),
            records: parts.records.len(),
            lost: parts.lost,
            nodes: RefCell::default(),
            counted: false,
            candidates: RefCell::default(),
            merged: RefCell::default(),
        };
        shard.load_layers(nodes, &parts.layers);
        if purpose == Purpose::Verify && shard.lost.is_empty() {
            shard.counted = shard.replay_counted(&parts.records).await;
            if shard.counted {
                return Some(shard);
            }
            shard.load_layers(nodes, &parts.layers);
        }
        for record in &parts.records {
            shard.replay(record).await;
        }
        Some(shard)
    }

    /// Loads the map as the checkpoint stored it.
    fn load_layers(&mut self, nodes: usize, layers: &[LayerEntry]) {
        let mut map = Map::new(nodes, usize::MAX);
        let mut known = BTreeSet::new();
        for entry in layers {
            let is_new = match entry {
                LayerEntry::Layer(record) => known.insert(record.layer),
                LayerEntry::Merged(_) => true,
            };
            if is_new {
                map.restore_layer(entry);
            }
        }
        if self.lacks_layers() {
            map.mark_unlisted_unreadable();
        }
        self.ledger = Ledger::new(map, self.rows.clone());
        self.nodes.borrow_mut().clear();
    }

    /// Replays the log as an opening does. Returns false if a node of the map cannot be read.
    async fn replay_counted(&self, records: &[ScannedRecord]) -> bool {
        for record in records {
            if replay_record(&self.ledger, &self.rows, record).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Returns the number of replayed records.
    pub(crate) fn records(&self) -> u64 {
        self.records as u64
    }

    /// Returns true if the live counts of the segments can be compared with the map: all of it
    /// could be read.
    pub(super) fn is_counted(&self) -> bool {
        self.counted && self.nodes.borrow().is_empty()
    }

    /// Returns true if a part of the layer table cannot be read.
    fn lacks_layers(&self) -> bool {
        self.lost.iter().any(|lost| matches!(lost.part, LostPartKind::Root | LostPartKind::Layers))
    }

    /// Returns true if records of the log are missing: any block may be older than its newest
    /// write.
    pub(crate) fn is_stale(&self) -> bool {
        self.lost.iter().any(LostPart::makes_stale)
    }

    /// Returns the parts found to be unreadable so far.
    pub(crate) fn lost(&self) -> Vec<LostPart> {
        self.lost.iter().cloned().chain(self.nodes.borrow().values().cloned()).collect()
    }

    /// Returns the layers and entries of the unreadable nodes.
    pub(super) fn lost_nodes(&self) -> Vec<(LayerId, MapEntry)> {
        let nodes = self.nodes.borrow();
        nodes.iter().filter_map(|(node, lost)| Some((node.layer, lost.entry?))).collect()
    }

    /// Returns the layers of volumes in this shard.
    pub(crate) fn user_layers(&self) -> Vec<LayerId> {
        let all = self.ledger.map.borrow().layer_ids();
        all.into_iter().filter(|layer| *layer >= LayerId::FIRST_USER).collect()
    }

    /// Runs `walk` over the map until it completes. Unreadable nodes are recorded, and the entries
    /// below them are unknown.
    async fn walk<T>(&self, mut walk: impl FnMut(&mut Map) -> std::result::Result<T, MissingNode>) -> T {
        loop {
            let walked = walk(&mut self.ledger.map.borrow_mut());
            let node = match walked {
                Ok(found) => return found,
                Err(node) => node,
            };
            if let Err(error) = load_node(&self.ledger, &self.rows, node).await {
                self.handle_gone_drives();
                let entry = self.ledger.map.borrow_mut().mark_unreadable(node);
                let mut nodes = self.nodes.borrow_mut();
                nodes
                    .entry(node)
                    .or_insert_with(|| LostPart::new(LostPartKind::Node(node), entry, Some(error)));
            }
        }
    }

    /// Pins the leaves that cover a range, and creates missing ones.
    async fn pin_leaves(&self, layer: LayerId, block: u64, count: u64) -> Pins {
        let mut pins = Pins::new();
        self.walk(|map| map.prepare_write(layer, block, count, &mut pins)).await;
        pins
    }

    /// Returns the entries of one layer from `block` on.
    pub(super) async fn layer_entry_run(&self, layer: LayerId, block: u64) -> EntryRun {
        let run = self.walk(|map| map.entry_run(layer, block)).await;
        let EntryRun::Same { until, entry } = run else { return run };
        // The search of the log may have found blocks within an unknown run.
        match self.next_candidate(layer, block).filter(|_| entry.is_unknown()) {
            Some(next) if next < block + rest_of_leaf(block) => EntryRun::Leaf,
            Some(next) if next < until => EntryRun::Same { until: next - next % NODE_ENTRIES as u64, entry },
            _ => run,
        }
    }

    /// Returns the entries of blocks of one layer.
    pub(super) async fn entries_of(
        &self,
        layer: LayerId,
        block: u64,
        count: usize,
    ) -> SmallVec<[MapEntry; 8]> {
        let mut entries = SmallVec::new();
        self.walk(|map| {
            entries.clear();
            map.lookup(layer, block, count, &mut entries)
        })
        .await;
        entries
    }

    /// Returns the entries that a chain of layers shows from `block` on. Below the last layer of an
    /// open chain, entries are unknown.
    pub(crate) async fn entry_run(&self, chain: &LayerChain, block: u64) -> EntryRun {
        let mut shown = if chain.open { MapEntry::UNKNOWN } else { MapEntry::ABSENT };
        let mut end = LAYER_BLOCKS_MAX.max(block + 1);
        for layer in &chain.layers {
            match self.layer_entry_run(*layer, block).await {
                EntryRun::Leaf => return EntryRun::Leaf,
                EntryRun::Same { until, entry } => {
                    end = end.min(until);
                    if !entry.is_absent() {
                        shown = entry;
                        break;
                    }
                }
            }
        }
        EntryRun::Same { until: end, entry: shown }
    }

    /// Returns the entries that a chain of layers shows for some blocks of one leaf. An unknown
    /// entry is replaced by the newest block that the log names, if the log was searched.
    pub(crate) async fn entries(&self, chain: &LayerChain, block: u64, count: usize) -> Vec<ResolvedEntry> {
        let blank = ResolvedEntry { layer: None, entry: MapEntry::ABSENT, stale: false };
        let mut shown = vec![blank; count];
        for layer in &chain.layers {
            if shown.iter().all(|shown| !shown.entry.is_absent()) {
                break;
            }
            let entries = self.entries_of(*layer, block, count).await;
            for (shown, entry) in shown.iter_mut().zip(entries) {
                if shown.entry.is_absent() && !entry.is_absent() {
                    *shown = ResolvedEntry { layer: Some(*layer), entry, stale: false };
                }
            }
        }
        for (block, shown) in (block..).zip(&mut shown) {
            if shown.entry.is_absent() && chain.open {
                shown.entry = MapEntry::UNKNOWN;
            }
            if let Some(layer) = shown.layer.filter(|_| shown.entry.is_unknown())
                && let Some((_, entry)) = self.candidates.borrow().get(&(layer, block))
            {
                (shown.entry, shown.stale) = (*entry, true);
            }
        }
        shown
    }
}

/// A chain of layers, from the top down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayerChain {
    pub(crate) layers: Vec<LayerId>,
    /// There may be unknown layers below.
    pub(crate) open: bool,
}

impl LayerChain {
    /// Returns the top layer; layer 0, which no volume has, if none of the layers is known.
    pub(super) fn top(&self) -> LayerId {
        self.layers.first().map_or(LayerId::new(0), |layer| *layer)
    }
}

/// The entry that a chain of layers shows for a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResolvedEntry {
    /// The layer that has the entry.
    pub(crate) layer: Option<LayerId>,
    pub(crate) entry: MapEntry,
    /// The entry comes from the log's headers: newer data may have been written, or the block
    /// deleted.
    pub(crate) stale: bool,
}

/// Returns the number of blocks from `block` to the end of its leaf.
pub(crate) fn rest_of_leaf(block: u64) -> u64 {
    NODE_ENTRIES as u64 - block % NODE_ENTRIES as u64
}
