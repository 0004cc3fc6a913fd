//! Both stores give the same answers to the same changes and queries.

use std::sync::Arc;

use super::random::{Random, copy_of, stream_body};
use crate::{
    Change, DeleteObject, ListQuery, MemoryBlocks, MemoryStore, ObjectRef, ObjectStore, Outcome,
    StoreOptions, VolumeStore,
};

const SIZE: u64 = 256 << 20;
/// Few, so that random histories fill outboxes.
const OUTBOX_MAX: u64 = 6;
/// The begin of the bodies on a volume of this size.
pub(super) const BODIES_START: u64 = (1 << 20) + SIZE / 4;

pub(super) fn options() -> StoreOptions {
    StoreOptions { cache_bytes: 1 << 20, outbox_max: OUTBOX_MAX }
}

/// The store in memory with the same limits.
pub(super) fn oracle() -> MemoryStore {
    MemoryStore::with_outbox_max(OUTBOX_MAX)
}

/// Compares all that callers can see.
pub(super) fn compare(store: &dyn ObjectStore, oracle: &MemoryStore) {
    let outboxes = oracle.outboxes().unwrap();
    assert_eq!(store.outboxes().unwrap(), outboxes);
    for outbox in outboxes {
        for limit in [usize::MAX, 2] {
            let expected = oracle.events(&outbox.target, limit).unwrap();
            assert_eq!(store.events(&outbox.target, limit).unwrap(), expected);
        }
    }
    let buckets = oracle.buckets().unwrap();
    assert_eq!(store.buckets().unwrap(), buckets);
    for bucket in buckets {
        let query = ListQuery { bucket: bucket.name.clone(), limit: usize::MAX, ..ListQuery::default() };
        let versions = oracle.list_versions(&query).unwrap();
        assert_eq!(store.list_versions(&query).unwrap(), versions);
        for version in versions.entries.iter().filter(|version| !version.is_marker) {
            let object = ObjectRef {
                bucket: bucket.name.clone(),
                key: version.key.clone(),
                version: Some(version.version.clone()),
            };
            let ((info, reader), (expected, body)) =
                (store.open(&object).unwrap(), oracle.open(&object).unwrap());
            assert_eq!(info, expected);
            let all = usize::try_from(info.size).unwrap() + 10;
            assert_eq!(reader.read(0, all).unwrap(), body.read(0, all).unwrap(), "{object:?}");
            let (from, length) = (info.size / 3, all / 2);
            assert_eq!(reader.read(from, length).unwrap(), body.read(from, length).unwrap());
        }
        assert_eq!(store.event_rules(&bucket.name).unwrap(), oracle.event_rules(&bucket.name).unwrap());
        let uploads = oracle.uploads(&bucket.name).unwrap();
        assert_eq!(store.uploads(&bucket.name).unwrap(), uploads);
        for upload in uploads {
            assert_eq!(store.upload(&upload.id).unwrap(), upload);
            for (after, limit) in [(0, usize::MAX), (2, 1)] {
                let expected = oracle.parts(&upload.id, after, limit).unwrap();
                assert_eq!(store.parts(&upload.id, after, limit).unwrap(), expected);
            }
        }
    }
}

/// Applies a change to both stores and compares the answers.
fn apply(store: &dyn ObjectStore, oracle: &MemoryStore, random: &mut Random, change: Change) {
    let source = random.source();
    let shown = format!("{change:?}");
    let mut streamed = copy_of(&change);
    stream_body(store, &mut streamed).unwrap();
    let expected = oracle.commit_from(change, source.clone()).wait().map_err(|error| error.kind());
    let found = store.commit_from(streamed, source).wait().map_err(|error| error.kind());
    assert_eq!(found, expected, "{}", shown.chars().take(300).collect::<String>());
    match expected {
        Ok(Outcome::Upload(id)) => random.uploads.push(id),
        Ok(Outcome::Object(info)) => random.versions.push(info.version),
        _ => {}
    }
}

/// Deletes everything through the interface.
pub(super) fn delete_all(store: &dyn ObjectStore) {
    for bucket in store.buckets().unwrap() {
        for upload in store.uploads(&bucket.name).unwrap() {
            store.commit(Change::AbortUpload { upload: upload.id }).wait().unwrap();
        }
        let query = ListQuery { bucket: bucket.name.clone(), limit: usize::MAX, ..ListQuery::default() };
        for version in store.list_versions(&query).unwrap().entries {
            let object =
                ObjectRef { bucket: bucket.name.clone(), key: version.key, version: Some(version.version) };
            // Retentions have ended by then; legal holds are removed.
            if !version.is_marker {
                let object = object.clone();
                store.commit(Change::SetLegalHold { object, legal_hold: false }).wait().unwrap();
            }
            let delete = DeleteObject {
                object,
                conditions: Default::default(),
                bypass_governance: true,
                now_ms: u64::MAX,
            };
            store.commit(Change::Delete(delete)).wait().unwrap();
        }
        let counters = store.bucket(&bucket.name).unwrap().counters;
        assert_eq!(counters, Default::default());
        store.commit(Change::DeleteBucket { name: bucket.name }).wait().unwrap();
    }
    for outbox in store.outboxes().unwrap() {
        store.commit(Change::DeleteOutbox { target: outbox.target }).wait().unwrap();
    }
}

fn one_seed(seed: u64) {
    let volume = Arc::new(MemoryBlocks::new(SIZE));
    let open = || VolumeStore::open(volume.clone(), options()).unwrap();
    let (mut store, oracle) = (open(), oracle());
    let mut random = Random::new(seed);
    for step in 1..=800 {
        let change = random.change();
        apply(&store, &oracle, &mut random, change);
        let mut query = random.query();
        let kind = |error: crate::ObjectError| error.kind();
        if query.delimiter.is_empty() {
            let (found, expected) = (store.list_versions(&query), oracle.list_versions(&query));
            assert_eq!(found.map_err(kind), expected.map_err(kind), "seed {seed}: {query:?}");
        }
        query.after_version = None;
        assert_eq!(store.list(&query).map_err(kind), oracle.list(&query).map_err(kind), "{query:?}");
        if step % 200 == 0 {
            compare(&store, &oracle);
            drop(store);
            store = open();
            compare(&store, &oracle);
        }
    }
    delete_all(&store);
    store.wait_for_reclaim();
    let bodies = bytes_of_bodies(&volume);
    assert_eq!(bodies, 0, "seed {seed}: blocks of deleted objects");
}

/// Returns the bytes in the region of bodies that are not zero.
pub(super) fn bytes_of_bodies(volume: &MemoryBlocks) -> usize {
    volume.nonzero_from(BODIES_START)
}

#[test]
fn both_stores_answer_alike() {
    (0..4).for_each(one_seed);
}

#[test]
fn pages_join_to_the_whole_listing() {
    let volume = Arc::new(MemoryBlocks::new(SIZE));
    let store = VolumeStore::open(volume, options()).unwrap();
    store.commit(super::readers::create("bucket")).wait().unwrap();
    let keys: Vec<String> =
        (0..300).map(|number| format!("{}/{}/k{number}", number % 7, number % 3)).collect();
    let puts: Vec<_> =
        keys.iter().map(|key| store.commit(super::readers::put("bucket", key, b"x"))).collect();
    puts.into_iter().for_each(|put| drop(put.wait().unwrap()));
    for (delimiter, entries, groups) in [("", 300, 0), ("/", 0, 7)] {
        let mut query = ListQuery {
            bucket: "bucket".into(),
            delimiter: delimiter.into(),
            limit: 4,
            ..ListQuery::default()
        };
        let (mut keys, mut prefixes) = (Vec::new(), Vec::new());
        loop {
            let page = store.list(&query).unwrap();
            keys.extend(page.entries.into_iter().map(|entry| entry.key));
            prefixes.extend(page.prefixes);
            let Some(next) = page.next else { break };
            query.after = next;
        }
        assert!(keys.is_sorted() && prefixes.is_sorted());
        assert_eq!((keys.len(), prefixes.len()), (entries, groups));
    }
}
