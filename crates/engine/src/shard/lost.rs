//! Lost blocks: blocks of volumes that are damaged and cannot be reconstructed from the other
//! columns of their rows.
//!
//! Readers, the scrubber, the cleaner and repair add the blocks that they find. The list persists
//! across openings, with the number of blocks that it has no room for. A block is removed when its
//! layer points elsewhere (it was overwritten, trimmed or deleted) or when it can be read again (a
//! drive returned); the blocks beyond the list are forgotten when a scrub of all segments ends.
//! Always true: the list does not change how blocks are read or written.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use format::limits::BLOCK;
use format::{Address, Item, LayerId, MapEntry, Mapping, Row, SegmentId, decode_lost, encode_lost};
use reactor::{Buffer, Notify};

use super::background::{BackgroundJob, StepOutcome};
use super::headers::ScannedRecord;
use super::lost_table::{LostKey, LostTable};
use super::{LEAF_BLOCKS, Shard};
use crate::error::{Error, ErrorKind, Result};
use crate::map::{Map, MissingNode};
use crate::row_reader::BlockRun;

/// Maximum number of blocks of the stored list that one record changes.
const STORED_BATCH: usize = 16;

/// The list of lost blocks of a shard.
#[derive(Default)]
pub(crate) struct LostBlocks {
    table: RefCell<LostTable>,
    /// Number of blocks of the stored list.
    stored: Cell<u64>,
    changed: Notify,
}

impl BackgroundJob for LostBlocks {
    async fn wait_for_work(&self, _: &Shard) {
        self.changed.notified().await;
    }

    async fn step(&self, shard: &Rc<Shard>) -> StepOutcome {
        shard.unsaved.store(shard).await;
        if let Err(error) = self.store(shard).await {
            tracing::warn!(shard = %shard.identity.shard, %error, "cannot store the list of lost blocks");
        }
        let count = {
            let table = self.table.borrow();
            table.listed().len() as u64 + table.unlisted()
        };
        shard.link.record_lost_blocks(count).await;
        StepOutcome::Idle
    }
}

impl LostBlocks {
    /// Wakes the writing task.
    pub(super) fn wake(&self) {
        self.changed.notify();
    }
}

/// A cell of a record that cannot be computed, and its contents.
pub(super) struct LostCell {
    content: CellContent,
    address: Address,
}

enum CellContent {
    Block(LayerId, u64),
    Node(MissingNode),
    Table,
}

/// Returns the blocks and map nodes that a record wrote to those cells of `row` for which
/// `is_right` is false.
pub(super) fn written_in_row(
    found: &ScannedRecord,
    row: Row,
    is_right: impl Fn(u8) -> bool,
) -> Vec<LostCell> {
    let within = row.get() - found.layout.row.get();
    let wrong = (0..found.scheme.data()).filter(|column| !is_right(*column));
    let written = wrong.filter_map(|column| {
        let index = u32::from(column) * found.layout.rows + within;
        let mut left = index.checked_sub(u32::from(found.header.header_blocks))?;
        for item in &found.header.items {
            let count = item.payload();
            if left >= count {
                left -= count;
                continue;
            }
            let content = match *item {
                Item::Write { layer, block, .. } | Item::Move { layer, block, .. } => {
                    CellContent::Block(layer, block.get() + u64::from(left))
                }
                Item::Node { layer, level, index } => CellContent::Node(MissingNode { layer, level, index }),
                Item::Table { .. } => CellContent::Table,
                Item::Unmap { .. } | Item::DropLayer { .. } | Item::Merge { .. } => return None,
            };
            let address = Address::new(found.header.location.segment, format::Column::new(column), row);
            return Some(LostCell { content, address });
        }
        None
    });
    written.collect()
}

impl LostBlocks {
    /// Adds a block that was lost at `address`.
    pub(super) fn note(&self, shard: &Shard, layer: LayerId, block: u64, address: Address) {
        if self.table.borrow_mut().insert((layer, block), address) {
            tracing::error!(shard = %shard.identity.shard, %layer, block, %address, "block lost: it cannot be reconstructed from other columns");
            self.changed.notify();
        }
    }

    /// Adds the block that a failed read reports, if it is lost.
    pub(super) async fn note_read(
        &self,
        shard: &Shard,
        layer: LayerId,
        blocks: std::ops::Range<u64>,
        error: &Error,
    ) {
        let Some(address) = error.location().address.filter(|_| error.kind() == ErrorKind::Corrupt) else {
            return;
        };
        for block in blocks {
            let look = shard.walk_chain((layer, block, 1), |map| map.lookup_one_through(layer, block));
            match look.await {
                Ok((owner, entry)) if entry.address() == Some(address) => {
                    return self.note(shard, owner, block, address);
                }
                Ok(_) => {}
                // A node of the map is lost, and with it every block below it.
                Err(_) => self.note(shard, layer, block, address),
            }
        }
    }

    /// Adds the blocks of those cells that are still live; rewrites metadata.
    pub(super) async fn note_cells(&self, shard: &Shard, cells: Vec<LostCell>) {
        for LostCell { content, address } in cells {
            match content {
                CellContent::Block(layer, block) => {
                    let merged_into = shard.ledger.map.borrow().merged_into(layer);
                    for layer in merged_into {
                        if self.is_live_at(shard, layer, block, address).await {
                            self.note(shard, layer, block, address);
                        }
                    }
                }
                CellContent::Node(node) => self.keep_lost_node(shard, node, address).await,
                // Its contents are in memory.
                CellContent::Table if shard.checkpointer.tables.rewrite(address) => {
                    shard.log.checkpoints.request()
                }
                CellContent::Table => {}
            }
        }
    }

    /// Handles rows of a segment, from `row` on, that no header describes: searches the whole map
    /// for blocks that live there, and adds the unreadable ones. Tables and map nodes that live
    /// there are stored again.
    pub(super) async fn note_after(&self, shard: &Shard, segment: SegmentId, row: Row) {
        self.rewrite_metadata_after(shard, segment, row).await;
        let end = format::limits::LAYER_BLOCKS_MAX;
        for layer in shard.layers() {
            let mut next = 0;
            while let Ok(Some(leaf)) = shard.walk(|map| map.next_leaf(layer, next, end)).await {
                let first = leaf / LEAF_BLOCKS * LEAF_BLOCKS;
                next = first + LEAF_BLOCKS;
                let mut entries = smallvec::SmallVec::new();
                let look = |map: &mut Map| map.lookup(layer, first, format::NODE_ENTRIES, &mut entries);
                // Readers find a lost node.
                if shard.walk(look).await.is_err() {
                    continue;
                }
                let lives = |entry: &MapEntry| {
                    entry.address().filter(|at| at.segment() == segment && at.row() >= row)
                };
                let living: Vec<_> = (first..)
                    .zip(&entries)
                    .filter_map(|(block, entry)| Some((block, lives(entry)?)))
                    .collect();
                for (block, address) in living {
                    if !self.is_readable(shard, layer, block).await {
                        self.note(shard, layer, block, address);
                    }
                }
            }
        }
    }

    /// Makes the next checkpoint store the tables and map nodes again that live in a segment from
    /// `row` on.
    async fn rewrite_metadata_after(&self, shard: &Shard, segment: SegmentId, row: Row) {
        let lives = |entry: MapEntry| {
            entry.address().filter(|address| address.segment() == segment && address.row() >= row)
        };
        let tables: Vec<Address> =
            shard.checkpointer.tables.pointers().into_iter().filter_map(lives).collect();
        for address in tables {
            if shard.checkpointer.tables.rewrite(address) {
                shard.log.checkpoints.request();
            }
        }
        let nodes = shard.ledger.map.borrow().stored_nodes();
        for (node, address) in nodes.into_iter().filter_map(|(node, entry)| Some((node, lives(entry)?))) {
            self.keep_lost_node(shard, node, address).await;
        }
    }

    /// Keeps a map node whose stored copy is lost in memory, and makes a checkpoint store it again.
    /// If it is not in memory, adds the blocks below it.
    async fn keep_lost_node(&self, shard: &Shard, node: MissingNode, address: Address) {
        match shard.unsaved.keep(shard, node, address).await {
            Ok(()) => self.changed.notify(),
            // The number of blocks below an inner node is unknown: at least those of its first
            // leaf.
            Err(_) => {
                let leaves = format::NODE_ENTRIES as u64;
                let leaf = (0..node.level).fold(node.index, |index, _| index * leaves);
                let first = leaf * LEAF_BLOCKS;
                (first..first + LEAF_BLOCKS).for_each(|block| self.note(shard, node.layer, block, address));
            }
        }
    }

    /// Returns true if a layer's block lives at `address`, or if that cannot be determined.
    async fn is_live_at(&self, shard: &Shard, layer: LayerId, block: u64, address: Address) -> bool {
        let look = shard.walk(|map| map.lookup_one(layer, block)).await;
        look.map_or(true, |entry| entry.address() == Some(address))
    }

    /// Returns the current lost blocks, and the minimum number of further ones that are not listed.
    pub(crate) async fn list(&self, shard: &Shard) -> (Vec<(LayerId, u64)>, u64) {
        self.drop_recovered(shard, false).await;
        let table = self.table.borrow();
        (table.listed().map(|(key, _)| key).collect(), table.unlisted())
    }

    /// Begins a review of the list: everything that is lost is added again before it ends.
    pub(super) fn begin_review(&self) {
        self.table.borrow_mut().begin_review();
    }

    /// Removes blocks from the list that can be read again. After a scrub of all segments
    /// (`complete`), the list is complete if it had room for all that the scrub found.
    pub(super) async fn end_review(&self, shard: &Shard, complete: bool) {
        self.drop_recovered(shard, true).await;
        if !complete {
            return;
        }
        loop {
            let added = self.table.borrow_mut().fill_up();
            if added.is_empty() {
                break;
            }
            self.review(shard, added, true).await;
        }
        self.table.borrow_mut().end_review();
        self.changed.notify();
    }

    /// Removes blocks from the list that do not live there any more, or, with `read_again`, that
    /// can be read.
    pub(super) async fn drop_recovered(&self, shard: &Shard, read_again: bool) {
        let known = self.table.borrow().listed().collect();
        self.review(shard, known, read_again).await;
    }

    /// Like [`Shard::drop_recovered`], for these blocks of the list.
    async fn review(&self, shard: &Shard, known: Vec<(LostKey, Address)>, read_again: bool) {
        // The last leaf that could not be read: its blocks stay listed, and it is not read again
        // for each.
        let mut unreadable = None;
        for ((layer, block), address) in known {
            // The layer may have been merged into another one since.
            let merged_layer = shard.ledger.map.borrow().merged_into(layer).last().copied().unwrap_or(layer);
            let leaf = Some((merged_layer, block / LEAF_BLOCKS));
            if unreadable == leaf {
                continue;
            }
            let look = shard.walk(|map| map.lookup_one(merged_layer, block)).await;
            if look.is_err() {
                unreadable = leaf;
            }
            let lives = look.map_or(true, |entry| entry.address() == Some(address));
            let stays = lives && !(read_again && self.is_readable(shard, merged_layer, block).await);
            if stays && merged_layer == layer {
                continue;
            }
            let mut table = self.table.borrow_mut();
            table.remove((layer, block));
            if stays {
                table.insert((merged_layer, block), address);
            }
            drop(table);
            self.changed.notify();
        }
    }

    async fn is_readable(&self, shard: &Shard, layer: LayerId, block: u64) -> bool {
        let Ok(entry) = shard.walk(|map| map.lookup_one(layer, block)).await else { return false };
        let Mapping::Block { address, crc } = entry.mapping() else { return true };
        let buffer = Buffer::new(BLOCK);
        let _pin = shard.rows.pin(address.segment());
        shard.rows.read_run(BlockRun { address, count: 1 }, &[crc], &buffer.span()).await.is_ok()
    }

    /// Loads the list that an earlier opening stored.
    pub(super) async fn load(&self, shard: &Shard) {
        let mut next = 0;
        while let Ok(Some(at)) = shard.next_stored(LayerId::LOST, next, u64::from(u32::MAX)).await {
            next = at + 1;
            let buffer = Buffer::new(BLOCK);
            let Ok(entry) = shard.walk(|map| map.lookup_one(LayerId::LOST, at)).await else {
                self.table.borrow_mut().restore_unlisted(1);
                continue;
            };
            let Mapping::Block { address, crc } = entry.mapping() else { continue };
            let read = {
                let _pin = shard.rows.pin(address.segment());
                shard.rows.read_run(BlockRun { address, count: 1 }, &[crc], &buffer.span()).await
            };
            match read.map(|_| decode_lost(buffer.as_slice())) {
                Ok(Ok(list)) => self.table.borrow_mut().restore(&list),
                // Reads and the next scrub find its blocks again. Until then the list is
                // incomplete.
                _ => {
                    tracing::warn!(shard = %shard.identity.shard, at, "cannot read a block of the list of lost blocks");
                    self.table.borrow_mut().restore_unlisted(1);
                }
            }
        }
        self.stored.set(next);
        self.drop_recovered(shard, true).await;
    }

    async fn store(&self, shard: &Shard) -> Result<()> {
        let lists = self.table.borrow().to_store();
        let blocks: Vec<_> =
            (0..).zip(&lists).map(|(at, list)| (at, Buffer::copy_of(&encode_lost(list)).span())).collect();
        let count = blocks.len() as u64;
        for chunk in blocks.chunks(STORED_BATCH) {
            shard.change_system(LayerId::LOST, chunk, &[]).await?;
        }
        let gone: Vec<u64> = (count..self.stored.get()).collect();
        for chunk in gone.chunks(STORED_BATCH) {
            shard.change_system(LayerId::LOST, &[], chunk).await?;
        }
        self.stored.set(count);
        shard.flush().await
    }
}
