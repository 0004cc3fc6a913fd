//! Loads the readable part of a checkpoint's tables.
//!
//! Always true: nothing is guessed. A table block that cannot be read is reported with the numbers
//! of the segments or counts in it.

use std::cell::RefCell;
use std::ops::Range;

use format::{
    CheckpointRoot, LIVE_PER_BLOCK, LayerEntry, MapEntry, SegmentId, SegmentRecord, segments_per_block,
};
use reactor::Buffer;

use super::{StoredTables, TableBlock, TablePointers, replace_pointers};
use crate::error::{Error, ErrorLocation, Result};
use crate::invariant::narrow;
use crate::row_reader::RowReader;
use crate::shard::lost_part::{LostPart, LostPartKind};
use crate::shard::walk::read_entry;

/// The readable part of a checkpoint's tables.
pub(in crate::shard) struct ReadableTables {
    /// The root; `None` if it cannot be read, and then neither can any table.
    pub(in crate::shard) root: Option<CheckpointRoot>,
    pub(in crate::shard) layers: Vec<LayerEntry>,
    pub(in crate::shard) stored: StoredTables,
    pub(in crate::shard) lost: Vec<LostPart>,
}

impl StoredTables {
    /// Reads the readable tables behind `root_entry`. Calls `restore` for every stored segment
    /// before anything is read from it.
    pub(in crate::shard) async fn load_readable(
        rows: &RowReader,
        root_entry: MapEntry,
        table_width: u8,
        mut restore: impl FnMut(SegmentId, SegmentRecord),
    ) -> ReadableTables {
        let mut stored = TablePointers { root: root_entry, ..TablePointers::default() };
        let mut left =
            ReadableTables { root: None, layers: Vec::new(), stored: Self::default(), lost: Vec::new() };
        let root = match read_decoded(rows, root_entry, CheckpointRoot::decode).await {
            Ok(root) => root,
            Err(error) => {
                left.lost.push(LostPart::new(LostPartKind::Root, Some(root_entry), Some(error)));
                left.stored = Self { inner: RefCell::new(stored) };
                return left;
            }
        };
        let mut pointers: Vec<Pointer> = Vec::new();
        for index in &root.indexes {
            match read_decoded(rows, *index, format::decode_entries).await {
                Ok(entries) => pointers.extend(entries.iter().map(|entry| Ok(*entry))),
                Err(error) => {
                    pointers.extend((0..format::INDEX_ENTRIES).map(|_| Err((*index, error.clone()))))
                }
            }
        }
        let mut pointers = pointers.into_iter();
        let per_block = block_ranges(root.tables.segments, segments_per_block(table_width));
        for ids in per_block {
            let pointer = pointers.next();
            stored.segments.extend(entry_of(&pointer));
            match read_table(rows, pointer, |block| format::decode_segments(block, table_width)).await {
                Ok(records) => ids.map(SegmentId::new).zip(records).for_each(|(id, record)| {
                    record.into_iter().for_each(|record| restore(id, record));
                }),
                Err((entry, error)) => {
                    left.lost.push(LostPart::new(LostPartKind::Segments(ids), entry, Some(error)))
                }
            }
        }
        for ids in block_ranges(root.tables.live, LIVE_PER_BLOCK) {
            let pointer = pointers.next();
            stored.live.extend(entry_of(&pointer).map(|entry| TableBlock { entry, ..TableBlock::default() }));
            match read_table(rows, pointer, format::decode_live).await {
                Ok(counts) => ids.map(SegmentId::new).zip(counts).for_each(|(id, count)| {
                    rows.segments.borrow_mut().restore_live(id, count);
                }),
                Err((entry, error)) => {
                    left.lost.push(LostPart::new(LostPartKind::Live(ids), entry, Some(error)))
                }
            }
        }
        for _ in 0..root.tables.layers {
            let pointer = pointers.next();
            stored
                .layers
                .extend(entry_of(&pointer).map(|entry| TableBlock { entry, ..TableBlock::default() }));
            match read_table(rows, pointer, format::decode_layers).await {
                Ok(layers) => left.layers.extend(layers),
                Err((entry, error)) => {
                    left.lost.push(LostPart::new(LostPartKind::Layers, entry, Some(error)))
                }
            }
        }
        stored.indexes.clone_from(&root.indexes);
        let exists = |entry: &MapEntry| {
            entry.address().is_some_and(|address| rows.segments.borrow().contains(address.segment()))
        };
        let counted: Vec<MapEntry> = stored.pointers().into_iter().filter(exists).collect();
        replace_pointers(rows, &[], &counted);
        left.stored = Self { inner: RefCell::new(stored) };
        left.root = Some(root);
        left
    }
}

/// A pointer to a table block, or the unreadable index block that holds it.
type Pointer = std::result::Result<MapEntry, (MapEntry, Error)>;

fn entry_of(pointer: &Option<Pointer>) -> Option<MapEntry> {
    pointer.as_ref()?.as_ref().ok().copied()
}

/// Returns the numbers, from 1, of the records in each of `blocks` table blocks.
fn block_ranges(blocks: u32, per_block: usize) -> impl Iterator<Item = Range<u32>> {
    let per_block: u32 = narrow(per_block, "C5");
    (0..blocks).map(move |block| {
        let first = block.saturating_mul(per_block).saturating_add(1);
        first..first.saturating_add(per_block)
    })
}

/// Reads and decodes a table block. An error comes with the entry of the unreadable block.
async fn read_table<T>(
    rows: &RowReader,
    pointer: Option<Pointer>,
    decode: impl FnOnce(&[u8]) -> std::result::Result<T, format::FormatError>,
) -> std::result::Result<T, (Option<MapEntry>, Error)> {
    match pointer {
        Some(Ok(entry)) => read_decoded(rows, entry, decode).await.map_err(|error| (Some(entry), error)),
        Some(Err((index, error))) => Err((Some(index), error)),
        None => Err((
            None,
            Error::corrupt("a checkpoint has fewer pointers than tables", ErrorLocation::default(), None),
        )),
    }
}

async fn read_decoded<T>(
    rows: &RowReader,
    entry: MapEntry,
    decode: impl FnOnce(&[u8]) -> std::result::Result<T, format::FormatError>,
) -> Result<T> {
    let block: Buffer = read_entry(rows, entry).await?;
    decode(block.as_slice()).map_err(|error| {
        let place = ErrorLocation { address: entry.address(), ..ErrorLocation::default() };
        Error::corrupt("a checkpoint table is damaged", place, Some(error))
    })
}
