//! Readers of deleted objects, concurrent writers, and errors of the device.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::same_results::options;
use crate::{
    BlockVolume, Body, Change, Conditions, DeleteObject, MemoryBlocks, ObjectErrorKind, ObjectLock,
    ObjectRef, ObjectStore, PutObject, Versioning, VolumeStore,
};

pub(super) fn put(bucket: &str, key: &str, body: &[u8]) -> Change {
    Change::Put(PutObject {
        bucket: bucket.into(),
        key: key.into(),
        body: Body::Bytes(body.to_vec()),
        size: None,
        lock: ObjectLock::default(),
        etag: format!("{:x}", body.len()),
        attributes: BTreeMap::new(),
        conditions: Conditions::default(),
        now_ms: 1,
    })
}

pub(super) fn create(name: &str) -> Change {
    let (versioning, settings) = (Versioning::Off, BTreeMap::new());
    Change::CreateBucket { name: name.into(), versioning, settings, now_ms: 0 }
}

fn object(key: &str) -> ObjectRef {
    ObjectRef { bucket: "bucket".into(), key: key.into(), version: None }
}

fn delete(key: &str) -> Change {
    let (object, conditions) = (object(key), Conditions::default());
    Change::Delete(DeleteObject { object, conditions, bypass_governance: false, now_ms: 1 })
}

fn store() -> (VolumeStore, Arc<MemoryBlocks>) {
    let volume = Arc::new(MemoryBlocks::new(64 << 20));
    let store = VolumeStore::open(volume.clone(), options()).unwrap();
    store.commit(create("bucket")).wait().unwrap();
    (store, volume)
}

#[test]
fn a_reader_keeps_the_body_of_a_deleted_object() {
    let (store, volume) = store();
    let body = vec![7; 100_000];
    store.commit(put("bucket", "key", &body)).wait().unwrap();
    let (_, reader) = store.open(&object("key")).unwrap();
    store.commit(delete("key")).wait().unwrap();
    // Others would take its place if it were free.
    for number in 0..50 {
        store.commit(put("bucket", &format!("other{number}"), &vec![9; 700_000])).wait().unwrap();
        store.commit(delete(&format!("other{number}"))).wait().unwrap();
    }
    assert_eq!(reader.read(0, 100_000).unwrap(), body);
    let held = volume.stored_bytes();
    drop(reader);
    store.wait_for_reclaim();
    assert!(volume.stored_bytes() + 100_000 <= held, "the space is freed after the last reader");
}

#[test]
fn a_body_that_is_dropped_frees_its_space() {
    let (store, volume) = store();
    let before = volume.stored_bytes();
    let mut writer = store.body_writer(1 << 20);
    writer.write(&vec![1; 512 << 10]).unwrap();
    let body = writer.finish().unwrap();
    assert_eq!(body.len(), 512 << 10);
    drop(body);
    store.wait_for_reclaim();
    assert!(volume.stored_bytes() <= before + (64 << 10));
}

#[test]
fn a_body_of_shared_bytes_is_stored_up_to_its_last_byte() {
    let (store, _) = store();
    let number = |at: usize| u8::try_from((at * 7 + at / 300) % 256).unwrap();
    let body: bytes::Bytes = (0..(2 << 20) + 777).map(number).collect();
    let mut writer = store.body_writer(body.len() as u64);
    writer.write_bytes(body.slice(..1 << 20)).unwrap();
    writer.write(&body[1 << 20..(1 << 20) + 8192]).unwrap();
    writer.write_bytes(body.slice((1 << 20) + 8192..)).unwrap();
    assert!(writer.write_bytes(body.slice(..4096)).is_err(), "the last write ended within a block");
    let stored = writer.finish().unwrap();
    assert_eq!(stored.len(), body.len() as u64);
    let Change::Put(mut change) = put("bucket", "key", &[]) else { panic!("a put") };
    change.body = stored;
    store.commit(Change::Put(change)).wait().unwrap();
    assert_eq!(store.open(&object("key")).unwrap().1.read(0, body.len()).unwrap(), body);
}

#[test]
fn a_full_volume_refuses_bodies_and_serves_the_rest() {
    let (store, _) = store();
    store.commit(put("bucket", "kept", &[5; 5000])).wait().unwrap();
    let mut stored = 0;
    let error = loop {
        match store.commit(put("bucket", &format!("k{stored}"), &vec![3; 1 << 20])).wait() {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ObjectErrorKind::NoSpace);
    assert!(stored > 30, "{stored} MiB of 47");
    assert_eq!(store.open(&object("kept")).unwrap().1.read(0, 5000).unwrap(), [5; 5000][..]);
    store.commit(delete("k0")).wait().unwrap();
    store.wait_for_reclaim();
    store.commit(put("bucket", "again", &vec![4; 1 << 20])).wait().unwrap();
}

#[test]
fn writers_on_many_threads_are_all_stored() {
    let (store, _) = store();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..40 {
                    let body = vec![thread; 2000 + number];
                    store.commit(put("bucket", &format!("{thread}/{number}"), &body)).wait().unwrap();
                    let (info, reader) = store.open(&object(&format!("{thread}/{number}"))).unwrap();
                    assert_eq!(info.size, body.len() as u64);
                    assert_eq!(reader.read(0, 10_000).unwrap(), body);
                }
            });
        }
    });
    assert_eq!(store.bucket("bucket").unwrap().counters.objects, 320);
}

#[test]
fn other_data_on_the_volume_is_refused() {
    let volume = Arc::new(MemoryBlocks::new(64 << 20));
    volume.write(0, &[0x55; 4096]).unwrap();
    let error = VolumeStore::open(volume, options()).err().unwrap();
    assert!(error.to_string().contains("no object store"), "{error}");
}
