//! The tables of a checkpoint: encoding them, storing the changed blocks, and loading them.
//!
//! The segment table is stored again each time: then all that recovery needs to find it (root,
//! index, segment table) is in segments that the superblocks list. The other tables, found through
//! it, are stored only where they changed.

mod salvage;

use std::cell::RefCell;
use std::hash::Hasher;
use std::rc::Rc;

use format::limits::BLOCK;
use format::{
    Address, CheckpointRoot, INDEX_ENTRIES, Item, LAYERS_PER_BLOCK, LIVE_PER_BLOCK, LayerEntry, MapEntry,
    SegmentId, SegmentRecord, TableCounts, segments_per_block,
};
use reactor::Buffer;
use smallvec::SmallVec;

use super::walk::read_entry;
use crate::error::{Error, ErrorLocation, Result};
use crate::geometry::Geometry;
use crate::invariant::{element, narrow};
use crate::log::{Effect, Log, Request, WriteClass};
use crate::row_reader::RowReader;

/// The locations of the tables of the last checkpoint.
#[derive(Default)]
pub(super) struct StoredTables {
    inner: RefCell<TablePointers>,
}

#[derive(Default)]
struct TablePointers {
    root: MapEntry,
    indexes: Vec<MapEntry>,
    segments: Vec<MapEntry>,
    live: Vec<TableBlock>,
    layers: Vec<TableBlock>,
}

/// A stored table block, which is reused while its content stays the same.
#[derive(Clone, Copy, Default)]
struct TableBlock {
    entry: MapEntry,
    fingerprint: u64,
    /// Must be stored again even if it is unchanged: its segment is being cleaned.
    stale: bool,
}

/// The contents of the tables of a checkpoint.
pub(super) struct TableContents {
    pub(super) root: CheckpointRoot,
    pub(super) geometry: Geometry,
    pub(super) segments: Vec<Option<SegmentRecord>>,
    pub(super) live: Vec<u32>,
    pub(super) layers: Vec<LayerEntry>,
}

/// The tables that recovery reads.
pub(super) struct LoadedTables {
    pub(super) layers: Vec<LayerEntry>,
    pub(super) stored: StoredTables,
}

impl StoredTables {
    /// Stores the tables and returns the entry of their root. Live counts follow each change of a
    /// pointer (S1).
    pub(super) async fn store(
        &self,
        log: &Rc<Log>,
        rows: &RowReader,
        contents: &TableContents,
    ) -> Result<MapEntry> {
        let (width, batch_max) = (contents.geometry.table_width, contents.geometry.meta_blocks());
        let segments: Vec<_> = contents
            .segments
            .chunks(segments_per_block(width))
            .map(|chunk| format::encode_segments(chunk, width))
            .collect();
        let live: Vec<_> = contents.live.chunks(LIVE_PER_BLOCK).map(format::encode_live).collect();
        let layers: Vec<_> = contents.layers.chunks(LAYERS_PER_BLOCK).map(format::encode_layers).collect();

        let new_segments = store_blocks(log, batch_max, 0, &segments).await?;
        // Pointers are replaced only after their blocks are stored: a checkpoint may be cancelled
        // at any step.
        let old_segments = std::mem::replace(&mut self.inner.borrow_mut().segments, new_segments.clone());
        replace_pointers(rows, &old_segments, &new_segments);
        let old_live = self.inner.borrow().live.clone();
        let new_live = store_changed(log, rows, batch_max, segments.len(), &live, old_live).await?;
        self.inner.borrow_mut().live = new_live;
        let old_layers = self.inner.borrow().layers.clone();
        let new_layers =
            store_changed(log, rows, batch_max, segments.len() + live.len(), &layers, old_layers).await?;
        self.inner.borrow_mut().layers = new_layers;
        self.store_root(log, rows, contents).await
    }

    async fn store_root(
        &self,
        log: &Rc<Log>,
        rows: &RowReader,
        contents: &TableContents,
    ) -> Result<MapEntry> {
        let (pointers, table_counts) = {
            let stored = self.inner.borrow();
            let tables = stored.live.iter().chain(&stored.layers).map(|block| block.entry);
            let pointers: Vec<_> = stored.segments.iter().copied().chain(tables).collect();
            (pointers, stored.counts())
        };
        let blocks: Vec<_> = pointers
            .chunks(INDEX_ENTRIES)
            .map(|chunk| {
                let mut entries = [MapEntry::ABSENT; INDEX_ENTRIES];
                entries.iter_mut().zip(chunk).for_each(|(place, entry)| *place = *entry);
                let mut block = vec![0; BLOCK];
                format::encode_entries(&entries, &mut block);
                block
            })
            .collect();
        let indexes = store_blocks(log, contents.geometry.meta_blocks(), pointers.len(), &blocks).await?;
        let old = std::mem::replace(&mut self.inner.borrow_mut().indexes, indexes.clone());
        replace_pointers(rows, &old, &indexes);

        let root = CheckpointRoot { tables: table_counts, indexes, ..contents.root.clone() };
        let entries = store_blocks(log, 1, pointers.len() + blocks.len(), &[root.encode()]).await?;
        let entry = element(&entries, 0, "S1");
        let old = std::mem::replace(&mut self.inner.borrow_mut().root, entry);
        replace_pointers(rows, &[old], &[entry]);
        Ok(entry)
    }

    /// Reads the tables behind `root`. Calls `restore` for every stored segment before anything is
    /// read from it.
    ///
    /// # Errors
    /// `Corrupt` if a table cannot be read or is invalid.
    pub(super) async fn load(
        rows: &RowReader,
        root_entry: MapEntry,
        table_width: u8,
        mut restore: impl FnMut(SegmentId, SegmentRecord) -> Result<()>,
    ) -> Result<(CheckpointRoot, LoadedTables)> {
        let damaged =
            |error| Error::corrupt("a checkpoint table is damaged", ErrorLocation::default(), Some(error));
        let root = CheckpointRoot::decode(read_entry(rows, root_entry).await?.as_slice()).map_err(damaged)?;
        let mut pointers = Vec::new();
        for index in &root.indexes {
            let block = read_entry(rows, *index).await?;
            pointers.extend_from_slice(&format::decode_entries(block.as_slice()).map_err(damaged)?[..]);
        }
        let (segment_pointers, rest) = pointers.split_at(root.tables.segments as usize);
        let (live_pointers, rest) = rest.split_at(root.tables.live as usize);
        let (layer_pointers, _) = rest.split_at(root.tables.layers as usize);

        let mut id = 1;
        for pointer in segment_pointers {
            let block = read_entry(rows, *pointer).await?;
            for record in format::decode_segments(block.as_slice(), table_width).map_err(damaged)? {
                if let Some(record) = record {
                    restore(SegmentId::new(id), record)?;
                }
                id += 1;
            }
        }
        let mut stored =
            TablePointers { root: root_entry, indexes: root.indexes.clone(), ..TablePointers::default() };
        stored.segments = segment_pointers.to_vec();
        let mut id = 1;
        for pointer in live_pointers {
            let block = read_entry(rows, *pointer).await?;
            stored.live.push(TableBlock {
                entry: *pointer,
                fingerprint: fingerprint(block.as_slice()),
                stale: false,
            });
            for count in format::decode_live(block.as_slice()).map_err(damaged)? {
                rows.segments.borrow_mut().restore_live(SegmentId::new(id), count);
                id += 1;
            }
        }
        let mut layers = Vec::new();
        for pointer in layer_pointers {
            let block = read_entry(rows, *pointer).await?;
            stored.layers.push(TableBlock {
                entry: *pointer,
                fingerprint: fingerprint(block.as_slice()),
                stale: false,
            });
            layers.extend(format::decode_layers(block.as_slice()).map_err(damaged)?);
        }
        stored.add_to_live_counts(rows);
        Ok((root, LoadedTables { layers, stored: Self { inner: RefCell::new(stored) } }))
    }

    /// Makes the next checkpoint store the table block at `place` again. Returns true if there is
    /// one, including blocks that are stored with each checkpoint.
    pub(super) fn rewrite(&self, place: Address) -> bool {
        let mut stored = self.inner.borrow_mut();
        let TablePointers { live, layers, .. } = &mut *stored;
        for block in live.iter_mut().chain(layers).filter(|block| block.entry.address() == Some(place)) {
            block.stale = true;
        }
        stored.pointers().iter().any(|entry| entry.address() == Some(place))
    }

    /// Returns every pointer of the tables.
    pub(super) fn pointers(&self) -> Vec<MapEntry> {
        self.inner.borrow().pointers()
    }
}

impl TablePointers {
    fn counts(&self) -> TableCounts {
        let count = |blocks: usize| narrow(blocks, "a table");
        TableCounts {
            segments: count(self.segments.len()),
            live: count(self.live.len()),
            layers: count(self.layers.len()),
        }
    }

    fn pointers(&self) -> Vec<MapEntry> {
        let tables = self.live.iter().chain(&self.layers).map(|block| block.entry);
        let front = std::iter::once(self.root).chain(self.indexes.iter().copied());
        front.chain(self.segments.iter().copied()).chain(tables).collect()
    }

    /// Adds the pointers of loaded tables to the live counts. Stored counts exclude them, because
    /// storing the counts changes them.
    fn add_to_live_counts(&self, rows: &RowReader) {
        replace_pointers(rows, &[], &self.pointers());
    }
}

/// Stores every block, `batch_max` at a time; returns their entries.
async fn store_blocks(
    log: &Rc<Log>,
    batch_max: usize,
    first: usize,
    blocks: &[Vec<u8>],
) -> Result<Vec<MapEntry>> {
    let mut entries = Vec::with_capacity(blocks.len());
    let block_ranges: Vec<_> = (first..).zip(blocks.iter().map(Vec::as_slice)).collect();
    for chunk in block_ranges.chunks(batch_max) {
        let mut items = SmallVec::new();
        let mut data = SmallVec::new();
        for (index, block) in chunk {
            items.push(Item::Table { index: narrow(*index, "a table") });
            data.push(Buffer::copy_of(block).span());
        }
        let request = Request { items, data, effect: Effect::Nothing, reply: None };
        entries.extend(log.commit(WriteClass::Checkpoint, request).await?);
    }
    assert_eq!(entries.len(), blocks.len(), "every table block has an entry");
    Ok(entries)
}

/// Stores the blocks with new content; returns the entries of all blocks.
async fn store_changed(
    log: &Rc<Log>,
    rows: &RowReader,
    batch_max: usize,
    first: usize,
    blocks: &[Vec<u8>],
    old: Vec<TableBlock>,
) -> Result<Vec<TableBlock>> {
    let mut stored: Vec<TableBlock> = Vec::with_capacity(blocks.len());
    let (mut changed, mut contents) = (Vec::new(), Vec::new());
    for (index, block) in blocks.iter().enumerate() {
        let fingerprint = fingerprint(block);
        let before = old.get(index).map_or_else(TableBlock::default, |block| *block);
        if before.entry.is_absent() || before.stale || before.fingerprint != fingerprint {
            changed.push(index);
            contents.push(block.clone());
        }
        stored.push(TableBlock { fingerprint, stale: false, ..before });
    }
    let entries = store_blocks(log, batch_max, first, &contents).await?;
    for (index, entry) in changed.into_iter().zip(entries) {
        let Some(place) = stored.get_mut(index) else { panic!("S1: table block {index} does not exist") };
        let before = std::mem::replace(&mut place.entry, entry);
        replace_pointers(rows, &[before], &[entry]);
    }
    let dropped: Vec<_> = old.iter().skip(blocks.len()).map(|block| block.entry).collect();
    replace_pointers(rows, &dropped, &[]);
    assert!(stored.iter().all(|block| block.entry.address().is_some()), "S1: a table block is stored");
    Ok(stored)
}

/// Updates the live counts for replaced table pointers.
fn replace_pointers(rows: &RowReader, old: &[MapEntry], new: &[MapEntry]) {
    let mut segments = rows.segments.borrow_mut();
    new.iter().for_each(|entry| segments.replace_reference(MapEntry::ABSENT, *entry));
    old.iter().for_each(|entry| segments.replace_reference(*entry, MapEntry::ABSENT));
}

/// Returns a hash of a block, to detect changes since the last checkpoint; never stored.
fn fingerprint(block: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(block);
    hasher.finish()
}
