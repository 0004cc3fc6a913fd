//! The map and the live counts, changed together: the effect of a stored record.
//!
//! The same code applies a record that was just written and replays one after a crash. Always true
//! (S1): every change of an entry that points into a segment changes that segment's live count in
//! the same step.

use std::cell::RefCell;
use std::rc::Rc;

use format::{Address, LayerBlock, LayerId, MapEntry, NODE_ENTRIES, SegmentId, UnmapMode};

use crate::geometry::RecordLayout;
use crate::invariant::element;
use crate::map::{Map, NodeRef};
use crate::row_reader::RowReader;
use crate::segments::CheckpointMark;

/// A shard's map, and the live counts that are changed with it.
pub(crate) struct Ledger {
    pub(crate) map: RefCell<Map>,
    /// The live counts as of the checkpoint in progress.
    pub(crate) mark: RefCell<Option<CheckpointMark>>,
    rows: Rc<RowReader>,
}

/// The payload blocks of one item: their position in the record, and their CRCs.
pub(crate) struct Payload<'a> {
    pub(crate) segment: SegmentId,
    pub(crate) layout: RecordLayout,
    /// Index of the first block in the record, header blocks included.
    pub(crate) first: u32,
    pub(crate) crcs: &'a [u32],
}

impl Payload<'_> {
    /// Returns the map entry of payload block `index` of the item.
    pub(crate) fn entry(&self, index: u32) -> MapEntry {
        let (column, row) = self.layout.place(self.first + index);
        let crc = element(self.crcs, index as usize, "R3");
        MapEntry::block(Address::new(self.segment, column, row), crc)
    }
}

impl Ledger {
    pub(crate) fn new(map: Map, rows: Rc<RowReader>) -> Self {
        Self { map: RefCell::new(map), mark: RefCell::new(None), rows }
    }

    /// Points the blocks from `block` on at the payload.
    pub(crate) fn write(&self, leaves: &[NodeRef], block: LayerBlock, payload: &Payload<'_>) {
        let (mut map, mut segments) = (self.map.borrow_mut(), self.rows.segments.borrow_mut());
        for (index, at) in (0..).zip(block.get()..).take(payload.crcs.len()) {
            let new = payload.entry(index);
            let leaf = leaf_of(&map, leaves, at);
            let old = map.replace(leaf, slot(at), new);
            segments.replace_reference(old, new);
        }
    }

    /// Points the blocks from `block` on at the payload if the map still points them at `from` (and
    /// the rows below it).
    pub(crate) fn relocate(
        &self,
        leaves: &[NodeRef],
        block: LayerBlock,
        from: Address,
        payload: &Payload<'_>,
    ) {
        let (mut map, mut segments) = (self.map.borrow_mut(), self.rows.segments.borrow_mut());
        for (index, at) in (0..).zip(block.get()..).take(payload.crcs.len()) {
            let Some(leaf) = find_leaf(&map, leaves, at) else { continue };
            let new = payload.entry(index);
            // The checksum is compared too: the cell may have been freed and reused since it was
            // read.
            let crc = element(payload.crcs, index as usize, "R3");
            if map.entry(leaf, slot(at)) != MapEntry::block(from.plus_rows(index), crc) {
                continue;
            }
            let old = map.replace(leaf, slot(at), new);
            segments.inherit_death_rate(from.segment(), payload.segment);
            segments.replace_reference(old, new);
        }
    }

    /// Unmaps blocks `block..block + count` in these leaves, which are all that exist.
    pub(crate) fn unmap(&self, leaves: &[NodeRef], block: LayerBlock, count: u64, mode: UnmapMode) {
        let (mut map, mut segments) = (self.map.borrow_mut(), self.rows.segments.borrow_mut());
        let new = match mode {
            UnmapMode::Absent => MapEntry::ABSENT,
            UnmapMode::Zero => MapEntry::ZERO,
        };
        let end = block.get() + count;
        for leaf in leaves {
            let start = map.leaf_start(*leaf);
            for at in start.max(block.get())..(start + NODE_ENTRIES as u64).min(end) {
                if map.entry(*leaf, slot(at)) != new {
                    let old = map.replace(*leaf, slot(at), new);
                    segments.replace_reference(old, new);
                }
            }
        }
    }

    /// Records that a checkpoint stored a node at `entry`, or that the node is empty and not
    /// stored.
    pub(crate) fn node_stored(&self, node: NodeRef, entry: MapEntry) {
        let old = self.map.borrow_mut().node_stored(node, entry);
        if old == entry {
            assert!(entry.is_absent(), "S1: a stored node has a new address");
            return;
        }
        self.rows.segments.borrow_mut().replace_reference(old, entry);
        if let Some(mark) = self.mark.borrow_mut().as_mut() {
            mark.replace_reference(old, entry);
        }
    }

    /// Moves the entries in leaves of one layer to those of another, which has a leaf for each of
    /// them.
    pub(crate) fn merge(&self, from: &[NodeRef], into: &[NodeRef]) {
        let (mut map, mut segments) = (self.map.borrow_mut(), self.rows.segments.borrow_mut());
        for leaf in from {
            let target = leaf_of(&map, into, map.leaf_start(*leaf));
            assert_ne!(*leaf, target, "F3: a leaf is merged into itself");
            let superseded = map.merge_leaf(*leaf, target);
            superseded.into_iter().for_each(|entry| segments.replace_reference(entry, MapEntry::ABSENT));
        }
    }

    /// Removes a layer, which is empty.
    pub(crate) fn drop_layer(&self, layer: LayerId) {
        let newest = self.rows.segments.borrow().newest_incarnation();
        self.map.borrow_mut().drop_layer(layer, newest);
        self.forget_dropped();
    }

    /// Frees the nodes of dropped layers that no running checkpoint needs any more.
    pub(crate) fn forget_dropped(&self) {
        let places = self.map.borrow_mut().forget_dropped();
        let mut segments = self.rows.segments.borrow_mut();
        places.into_iter().for_each(|entry| segments.replace_reference(entry, MapEntry::ABSENT));
    }

    /// Releases the pins of leaves.
    pub(crate) fn unpin(&self, leaves: &[NodeRef]) {
        self.map.borrow_mut().unpin(leaves);
    }
}

/// Returns the leaf among `leaves` that covers block `at`.
fn find_leaf(map: &Map, leaves: &[NodeRef], at: u64) -> Option<NodeRef> {
    let start = at - at % NODE_ENTRIES as u64;
    leaves.iter().find(|leaf| map.leaf_start(**leaf) == start).copied()
}

/// Returns the leaf that a write prepared for block `at`.
fn leaf_of(map: &Map, leaves: &[NodeRef], at: u64) -> NodeRef {
    match find_leaf(map, leaves, at) {
        Some(leaf) => leaf,
        None => panic!("M1: block {at} is applied to a leaf that was not prepared"),
    }
}

#[allow(clippy::cast_possible_truncation)]
fn slot(at: u64) -> usize {
    at as usize % NODE_ENTRIES
}
