//! All that callers see of a store as text, and the consistency of a store's index and blocks.
#![allow(clippy::big_endian_bytes, reason = "keys of the index are big-endian")]

use std::collections::BTreeMap;
use std::fmt::Write;

use redb::{ReadableTable, ReadableTableMetadata};

use super::same_results::{BODIES_START, bytes_of_bodies, delete_all};
use crate::index::IndexTxn;
use crate::record::{PartRecord, VersionRecord, decode};
use crate::segment::BodySegment;
use crate::{Counters, ListQuery, MemoryBlocks, ObjectRef, ObjectStore, VolumeStore};

/// Describes all that callers can see, and compares the counters with the listing.
pub(super) fn describe(store: &dyn ObjectStore) -> String {
    let mut text = String::new();
    for bucket in store.buckets().unwrap() {
        writeln!(text, "{bucket:?}").unwrap();
        let query = ListQuery { bucket: bucket.name.clone(), limit: 10_000, ..ListQuery::default() };
        let mut counted = Counters::default();
        for version in store.list_versions(&query).unwrap().entries {
            writeln!(text, "{version:?}").unwrap();
            let is_object = version.is_latest && !version.is_marker;
            *if is_object { &mut counted.objects } else { &mut counted.versions } += 1;
            counted.bytes += version.size;
            if !version.is_marker {
                let object = ObjectRef {
                    bucket: bucket.name.clone(),
                    key: version.key,
                    version: Some(version.version),
                };
                let (info, reader) = store.open(&object).unwrap();
                let body = reader.read(0, 1 << 30).unwrap();
                writeln!(text, "{info:?} {:x}", checksum(&body)).unwrap();
            }
        }
        assert_eq!(bucket.counters, counted, "counters of {} and its listing", bucket.name);
        let current = store.list(&query).unwrap().entries;
        assert_eq!(current.len() as u64, counted.objects, "{current:?}");
        for upload in store.uploads(&bucket.name).unwrap() {
            writeln!(text, "{upload:?} {:?}", store.parts(&upload.id, 0, 1000).unwrap()).unwrap();
        }
        writeln!(text, "{:?}", store.event_rules(&bucket.name).unwrap()).unwrap();
    }
    for outbox in store.outboxes().unwrap() {
        let events = store.events(&outbox.target, usize::MAX).unwrap();
        assert_eq!(events.len() as u64, outbox.pending, "{outbox:?}");
        writeln!(text, "{outbox:?} {events:?}").unwrap();
    }
    text
}

fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes)
}

/// Checks that references and rows match, and that only blocks with a reference hold data. Returns
/// the newest number of the index.
pub(super) fn audit(store: &VolumeStore, volume: &MemoryBlocks, case: &str) -> u64 {
    assert!(store.wait_for_reclaim(), "{case}: a reader holds runs");
    let database = store.database();
    let transaction = database.begin_write().unwrap();
    let index = IndexTxn::open(&transaction).unwrap();
    let references = index.references();
    let mut counted: BTreeMap<u64, (u64, u64)> =
        references.iter().map(|(start, (blocks, _))| (*start, (*blocks, 0))).collect();
    let mut count = |body: &[BodySegment]| {
        for segment in body {
            let BodySegment::Run { run, offset, length } = segment else { continue };
            let (blocks, references) = counted.get_mut(run).expect("a body refers to an allocated run");
            assert!(offset + length <= *blocks * 4096, "{case}: a body beyond its run");
            *references += 1;
        }
    };
    for table in [&index.objects, &index.versions] {
        for row in table.iter().unwrap() {
            count(&VersionRecord::decode(row.unwrap().1.value()).unwrap().detail.body);
        }
    }
    for row in index.parts.iter().unwrap() {
        let (key, part) = row.unwrap();
        let upload = u64::from_be_bytes(*key.value().first_chunk().unwrap());
        assert!(index.uploads.get(upload).unwrap().is_some(), "{case}: a part without an upload");
        count(&decode::<PartRecord>(part.value()).unwrap().body);
    }
    let uploads = (index.uploads.iter().unwrap().count(), index.bucket_uploads.iter().unwrap().count());
    assert_eq!(uploads.0, uploads.1, "{case}: uploads and uploads of buckets");
    let pending: u64 = index.outboxes.iter().unwrap().map(|row| row.unwrap().1.value().0).sum();
    assert_eq!(index.events.len().unwrap(), pending, "{case}: events and their count");
    let mut buckets: Vec<u64> = index.bucket_numbers();
    buckets.retain(|number| index.event_rules.get(*number).unwrap().is_some());
    assert_eq!(index.event_rules.len().unwrap(), buckets.len() as u64, "{case}: rules without a bucket");
    assert_eq!(counted, references, "{case}: references and their count");
    check_blocks(volume, &references, case);
    let sequence = index.last_sequence();
    drop(index);
    transaction.abort().unwrap();
    sequence
}

fn check_blocks(volume: &MemoryBlocks, references: &BTreeMap<u64, (u64, u64)>, case: &str) {
    let mut end = 0;
    for (start, (blocks, _)) in references {
        assert!(*start >= end && *blocks <= 4096, "{case}: run {start}+{blocks} after block {end}");
        end = start + blocks;
    }
    for block in volume.stored_blocks(BODIES_START / 4096..u64::MAX) {
        let run = references.range(..=block).next_back();
        let is_used = run.is_some_and(|(start, (blocks, _))| block < start + blocks);
        assert!(is_used, "{case}: block {block} holds data of no object");
    }
}

/// Deletes everything, and checks that no block is left.
pub(super) fn drain(store: &VolumeStore, volume: &MemoryBlocks, case: &str) {
    delete_all(store);
    audit(store, volume, case);
    assert_eq!(bytes_of_bodies(volume), 0, "{case}: blocks without an object");
}

/// Returns the number in an environment variable of the long runs, or the one of every run.
pub(super) fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}
