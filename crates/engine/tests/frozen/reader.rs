//! A reader of pools written after docs/format.md: it implements the rules for locations, pointers
//! and the end of the log independently of the engine. Bytes are decoded by the decoders of the
//! format crate, which a separate test compares with the same document.
//!
//! It reads a pool in the state after an open, and writes nothing: see "Opening a pool" in the
//! document.

use std::collections::BTreeMap;

use codec::{Code, ColumnSet, crc32c};
use format::limits::{BLOCK, BLOCK_BYTES, SLICE, SUPERBLOCK_SLOT};
use format::{
    Address, CheckpointRoot, DriveState, Header, Item, LayerEntry, LayerId, MapEntry, Mapping, SegmentId,
    SegmentRecord, ShardRecord, Superblock, UnmapMode, UnverifiedHeader, UnverifiedSuperblock, VolumeRecord,
    VolumeState, decode_entries, decode_layers, decode_segments,
};

use crate::history::Contents;
use crate::image::Image;

/// Entries of a map node and of an index block.
const ENTRIES: u64 = 256;

/// A pool in memory.
pub(crate) struct Reader {
    pub(crate) superblock: Superblock,
    /// The drives by index; `None` for drives that are not in use.
    drives: Vec<Option<Image>>,
    shards: Vec<ShardContents>,
}

/// The contents of a shard.
#[derive(Default)]
struct ShardContents {
    segments: BTreeMap<SegmentId, SegmentRecord>,
    /// The entries of all leaves.
    map: BTreeMap<(LayerId, u64), MapEntry>,
}

/// A record of the log.
struct LogRecord {
    header: Header,
    rows: u32,
}

impl LogRecord {
    /// Returns the address of block `index`: header blocks first, column by column.
    fn address(&self, index: u32) -> Address {
        let location = &self.header.location;
        let column = u8::try_from(index / self.rows).unwrap();
        Address::new(location.segment, format::Column::new(column), location.row.plus(index % self.rows))
    }

    /// Returns the map entry of payload block `index`.
    fn entry(&self, index: u32) -> MapEntry {
        let address = self.address(u32::from(self.header.header_blocks) + index);
        MapEntry::block(address, self.header.crcs[index as usize])
    }
}

impl Reader {
    /// Reads the pool on these drives, given in any order.
    pub(crate) fn open(images: &[Image]) -> Self {
        let found: Vec<_> =
            images.iter().filter_map(|image| Some((image, newest_of_slots(image)?))).collect();
        let superblock = found.iter().map(|(_, (superblock, _))| superblock).max_by_key(|one| age(one));
        let superblock = superblock.unwrap().clone();
        for (_, (other, drive)) in &found {
            assert!(superblock.accounts_for(other, *drive), "the drives have diverged");
        }
        let image_of = |record: &format::DriveRecord| {
            let mine = found.iter().find(|(_, (_, drive))| *drive == record.id)?;
            (record.state == DriveState::Online).then(|| mine.0.clone())
        };
        let drives = superblock.drives.iter().map(image_of).collect();
        let mut reader = Self { superblock, drives, shards: Vec::new() };
        for index in 0..reader.superblock.shards.len() {
            let record = reader.superblock.shards[index].clone();
            let shard = reader.open_shard(&record, u16::try_from(index).unwrap());
            reader.shards.push(shard);
        }
        reader
    }

    fn open_shard(&self, record: &ShardRecord, index: u16) -> ShardContents {
        let mut shard = ShardContents::default();
        for (id, _, segment) in &record.recent {
            shard.segments.insert(*id, segment.clone());
        }
        if record.root.address().is_some() {
            self.load_checkpoint(&mut shard, record);
        }
        for found in self.find_records(&shard, record, index) {
            replay(&mut shard, &found);
        }
        shard
    }

    fn load_checkpoint(&self, shard: &mut ShardContents, record: &ShardRecord) {
        let root = CheckpointRoot::decode(&self.block(shard, record.root)).unwrap();
        assert_eq!(root.sequence, record.checkpointed);
        let mut tables: Vec<MapEntry> = Vec::new();
        for index in &root.indexes {
            tables.extend(decode_entries(&self.block(shard, *index)).unwrap().iter());
        }
        let (segments, live) = (root.tables.segments as usize, root.tables.live as usize);
        let mut id = 1;
        for table in &tables[..segments] {
            for segment in decode_segments(&self.block(shard, *table), self.superblock.table_width).unwrap() {
                if let Some(segment) = segment {
                    // The superblock's list takes precedence.
                    shard.segments.entry(SegmentId::new(id)).or_insert(segment);
                }
                id += 1;
            }
        }
        for table in &tables[segments + live..root.tables.total()] {
            for entry in decode_layers(&self.block(shard, *table)).unwrap() {
                // Entries of merged layers matter only to the cleaner.
                let LayerEntry::Layer(layer) = entry else { continue };
                if let Some(level) = layer.height.checked_sub(1) {
                    let before = shard.map.values().filter(|entry| entry.address().is_some()).count() as u64;
                    self.load_node(shard, layer.layer, level, 0, layer.root);
                    let holes = shard.map.values().filter(|entry| entry.address().is_none()).count() as u64;
                    assert_eq!(shard.map.len() as u64 - holes - before, layer.stored, "{layer:?}");
                }
            }
        }
    }

    /// Reads the tree below node `index` of a level.
    fn load_node(&self, shard: &mut ShardContents, layer: LayerId, level: u8, index: u64, node: MapEntry) {
        let entries = decode_entries(&self.block(shard, node)).unwrap();
        for (slot, entry) in (0..).zip(entries.iter()).filter(|(_, entry)| !entry.is_absent()) {
            let number = index * ENTRIES + slot;
            match level {
                0 => drop(shard.map.insert((layer, number), *entry)),
                _ => self.load_node(shard, layer, level - 1, number, *entry),
            }
        }
    }

    /// Returns the records after the checkpoint, in order, up to the first one that is missing or
    /// incomplete.
    fn find_records(&self, shard: &ShardContents, record: &ShardRecord, index: u16) -> Vec<LogRecord> {
        let mut found = BTreeMap::new();
        for (id, from, segment) in &record.recent {
            let mut row = from.get();
            while let Some(one) = self.header_at(*id, segment, row, index) {
                row += one.rows;
                found.insert(one.header.location.sequence, one);
            }
        }
        let durable = found.values().map(|one| one.header.location.durable).max().unwrap_or_default();
        let mut records = Vec::new();
        let mut next = record.checkpointed.next();
        while let Some(one) = found.remove(&next) {
            if next > durable && !self.is_whole(shard, &one) {
                break;
            }
            records.push(one);
            next = next.next();
        }
        assert!(next > durable, "a record that was durable is missing: {next} of {durable}");
        records
    }

    /// Returns the record that starts at `row`, if its header passes verification and belongs
    /// there.
    fn header_at(&self, id: SegmentId, segment: &SegmentRecord, row: u32, shard: u16) -> Option<LogRecord> {
        let rows = u32::try_from(self.superblock.zone_bytes / BLOCK_BYTES).unwrap();
        if row >= rows {
            return None;
        }
        // The stored cell may be a remnant of a crash. The other columns may then reconstruct the
        // header.
        let first = self.cell(segment, 0, row).into_iter().chain(self.reconstructions(segment, 0, row));
        let header = first.into_iter().find_map(|mut bytes| {
            let unverified = UnverifiedHeader::parse(&bytes).ok()?;
            for more in 1..u32::from(unverified.blocks()) {
                bytes.extend(self.data_cell(segment, 0, row + more)?);
            }
            unverified.verify(&bytes, &self.superblock.key).ok()
        })?;
        let location = &header.location;
        let belongs = location.pool == self.superblock.pool
            && location.shard.get() == shard
            && location.segment == id
            && location.incarnation == segment.incarnation
            && location.row.get() == row;
        let rows = header.blocks().div_ceil(u32::from(segment.scheme.data()));
        belongs.then_some(LogRecord { header, rows })
    }

    fn is_whole(&self, shard: &ShardContents, record: &LogRecord) -> bool {
        (0..record.header.payload_blocks()).all(|index| self.try_block(shard, record.entry(index)).is_some())
    }

    /// Returns the block that an entry points to.
    fn block(&self, shard: &ShardContents, entry: MapEntry) -> Vec<u8> {
        self.try_block(shard, entry).unwrap_or_else(|| panic!("{entry:?} cannot be read"))
    }

    /// Returns the block that an entry points to, if its cell or a reconstruction has the entry's
    /// CRC.
    fn try_block(&self, shard: &ShardContents, entry: MapEntry) -> Option<Vec<u8>> {
        let Mapping::Block { address, crc } = entry.mapping() else { panic!("the entry has no address") };
        let segment = &shard.segments[&address.segment()];
        let (column, row) = (address.column().get(), address.row().get());
        let stored = self.cell(segment, column, row).filter(|bytes| crc32c(bytes) == crc);
        stored.or_else(|| {
            self.reconstructions(segment, column, row).into_iter().find(|bytes| crc32c(bytes) == crc)
        })
    }

    /// Returns a data cell, reconstructed from the other columns if its drive is not in use.
    fn data_cell(&self, segment: &SegmentRecord, column: u8, row: u32) -> Option<Vec<u8>> {
        let stored = self.cell(segment, column, row);
        stored.or_else(|| self.reconstructions(segment, column, row).into_iter().next())
    }

    /// Returns the bytes of a cell, if it was written to a drive in use.
    fn cell(&self, segment: &SegmentRecord, column: u8, row: u32) -> Option<Vec<u8>> {
        let column = &segment.columns[usize::from(column)];
        let (drive, zone) = column.zone.filter(|_| row < column.missing_from.get())?;
        let zone = self.superblock.data_start + u64::from(zone.get()) * self.superblock.zone_bytes;
        let at = usize::try_from(zone + u64::from(row) * BLOCK_BYTES).unwrap();
        Some(self.drives[drive.index()].as_ref()?.bytes[at..at + BLOCK].to_vec())
    }

    /// Returns the reconstructions of a cell, one for each choice of k other columns of the row.
    fn reconstructions(&self, segment: &SegmentRecord, wanted: u8, row: u32) -> Vec<Vec<u8>> {
        let (data, width) = (segment.scheme.data(), segment.scheme.width());
        let code = Code::new(data, segment.scheme.parity()).unwrap();
        let cells: Vec<_> = (0..width).map(|column| self.cell(segment, column, row)).collect();
        let choices = (0u32..1 << width).filter(|choice| {
            let is_present = |column: u8| column != wanted && cells[usize::from(column)].is_some();
            choice.count_ones() == u32::from(data)
                && (0..width).all(|column| choice & 1 << column == 0 || is_present(column))
        });
        let reconstruct = |choice: u32| {
            let present: ColumnSet = (0..width).filter(|column| choice & 1 << column != 0).collect();
            let decoder = code.decoder(present, &[wanted]).unwrap();
            let inputs: Vec<&[u8]> = decoder
                .sources()
                .iter()
                .map(|column| &cells[usize::from(*column)].as_ref().unwrap()[..])
                .collect();
            let mut cell = vec![0; BLOCK];
            decoder.apply(&inputs, &mut [&mut cell]);
            cell
        };
        choices.map(reconstruct).collect()
    }

    /// Returns the contents of the volumes, by name.
    pub(crate) fn volumes(&self) -> Contents {
        let catalogue = &self.shards[0];
        let records = catalogue.map.range((LayerId::SYSTEM, 0)..(LayerId::new(LayerId::SYSTEM.get() + 1), 0));
        let records: Vec<_> = records
            .map(|((_, number), entry)| {
                let record = VolumeRecord::decode(&self.block(catalogue, *entry)).unwrap();
                assert_eq!(u64::from(record.id.get()), *number);
                record
            })
            .collect();
        let parents = records.iter().filter_map(|record| Some((record.layer, record.parent?))).collect();
        let ready = records.iter().filter(|record| record.state == VolumeState::Ready);
        ready.map(|record| (record.name.clone(), self.volume(record, &parents))).collect()
    }

    fn volume(&self, record: &VolumeRecord, parents: &BTreeMap<LayerId, LayerId>) -> Vec<u8> {
        let (shards, slice) = (self.shards.len() as u64, SLICE / BLOCK_BYTES);
        let mut bytes = Vec::new();
        for block in 0..record.size.div_ceil(BLOCK_BYTES) {
            let shard = &self.shards[usize::try_from(block / slice % shards).unwrap()];
            let local = block / slice / shards * slice + block % slice;
            let mut layers = std::iter::successors(Some(record.layer), |layer| parents.get(layer).copied());
            match layers.find_map(|layer| shard.map.get(&(layer, local))) {
                Some(entry) if entry.address().is_some() => bytes.extend(self.block(shard, *entry)),
                _ => bytes.resize(bytes.len() + BLOCK, 0),
            }
        }
        bytes.truncate(usize::try_from(record.size).unwrap());
        bytes
    }
}

/// Returns the sort key of a superblock: higher is newer.
fn age(superblock: &Superblock) -> (u64, u64) {
    (superblock.epoch().epoch, superblock.generation.get())
}

fn newest_of_slots(image: &Image) -> Option<(Superblock, format::DriveId)> {
    let slot = usize::try_from(SUPERBLOCK_SLOT).unwrap();
    let slots = [&image.bytes[..slot], &image.bytes[slot..2 * slot]];
    let read = |bytes: &&[u8]| UnverifiedSuperblock::parse(bytes).ok()?.verify(bytes).ok();
    slots.iter().filter_map(read).max_by_key(|(superblock, _)| age(superblock))
}

/// Applies a record to the map.
fn replay(shard: &mut ShardContents, record: &LogRecord) {
    let mut next = 0;
    for item in &record.header.items {
        let count = item.payload();
        match *item {
            Item::Write { layer, block, .. } => {
                for index in 0..count {
                    let key = (layer, block.get() + u64::from(index));
                    shard.map.insert(key, record.entry(next + index));
                }
            }
            Item::Move { layer, block, from, .. } => {
                for index in 0..count {
                    let key = (layer, block.get() + u64::from(index));
                    let is_unchanged = shard
                        .map
                        .get(&key)
                        .is_some_and(|entry| entry.address() == Some(from.plus_rows(index)));
                    if is_unchanged {
                        shard.map.insert(key, record.entry(next + index));
                    }
                }
            }
            Item::Unmap { layer, block, count, mode } => {
                let range = (layer, block.get())..(layer, block.get() + count);
                shard.map.retain(|key, _| !range.contains(key));
                if mode == UnmapMode::Zero {
                    let blocks = block.get()..block.get() + count;
                    shard.map.extend(blocks.map(|block| ((layer, block), MapEntry::ZERO)));
                }
            }
            Item::Merge { from, into, block, count } => {
                for block in block.get()..block.get() + u64::from(count) {
                    if let Some(entry) = shard.map.remove(&(from, block)) {
                        shard.map.entry((into, block)).or_insert(entry);
                    }
                }
            }
            Item::DropLayer { .. } | Item::Node { .. } | Item::Table { .. } => {}
        }
        next += count;
    }
}
