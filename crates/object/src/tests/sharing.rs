//! Copies and completed uploads share runs: they change the index only.

use std::sync::Arc;

use super::audit::{audit, drain};
use super::cut_device::SIZE;
use super::readers::{create, put};
use super::same_results::{BODIES_START, options};
use super::scenarios::{complete, copy, copy_part, create_upload, object, part};
use crate::{Change, MemoryBlocks, ObjectStore, Outcome, PutObject, VolumeStore};

const MIB: usize = 1 << 20;

fn store() -> (VolumeStore, Arc<MemoryBlocks>) {
    let volume = Arc::new(MemoryBlocks::new(SIZE));
    let store = VolumeStore::open(volume.clone(), options()).unwrap();
    store.commit(create("bucket")).wait().unwrap();
    (store, volume)
}

fn body_blocks(store: &VolumeStore, volume: &MemoryBlocks) -> Vec<u64> {
    store.wait_for_reclaim();
    volume.stored_blocks(BODIES_START / 4096..u64::MAX)
}

fn start_upload(store: &VolumeStore) -> String {
    match store.commit(create_upload("bucket", "upload")).wait().unwrap() {
        Outcome::Upload(id) => id,
        other => panic!("{other:?}"),
    }
}

fn read(store: &VolumeStore, key: &str) -> Vec<u8> {
    store.open(&object("bucket", key)).unwrap().1.read(0, 1 << 30).unwrap().to_vec()
}

fn delete(store: &VolumeStore, key: &str) {
    let delete = crate::DeleteObject {
        object: object("bucket", key),
        conditions: crate::Conditions::default(),
        bypass_governance: false,
        now_ms: 1,
    };
    store.commit(Change::Delete(delete)).wait().unwrap();
}

/// Bytes that differ from block to block.
fn body(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index / 4096 % 251) as u8 + 1).collect()
}

#[test]
fn a_copy_writes_no_block_of_a_body() {
    let (store, volume) = store();
    store.commit(put("bucket", "source", &body(3 * MIB))).wait().unwrap();
    let before = body_blocks(&store, &volume);
    assert_eq!(before.len(), 3 * MIB / 4096);
    for number in 0..10 {
        store.commit(copy(object("bucket", "source"), "bucket", &format!("copy{number}"))).wait().unwrap();
    }
    assert_eq!(body_blocks(&store, &volume), before);
    delete(&store, "source");
    (0..9).for_each(|number| delete(&store, &format!("copy{number}")));
    assert_eq!(body_blocks(&store, &volume), before, "the last copy keeps the runs");
    assert!(read(&store, "copy9") == body(3 * MIB));
    audit(&store, &volume, "one copy");
    delete(&store, "copy9");
    assert!(body_blocks(&store, &volume).is_empty());
}

#[test]
fn a_completed_upload_writes_no_block_of_a_body() {
    let (store, volume) = store();
    let upload = start_upload(&store);
    let bytes = body(5 * MIB);
    for number in 1..=3 {
        store.commit(part(&upload, number, bytes.clone())).wait().unwrap();
    }
    let before = body_blocks(&store, &volume);
    store.commit(complete(&upload, &[1, 2, 3])).wait().unwrap();
    assert_eq!(body_blocks(&store, &volume), before);
    assert!(read(&store, "upload") == [bytes.clone(), bytes.clone(), bytes].concat());
    drain(&store, &volume, "upload");
}

#[test]
fn a_part_that_is_left_out_is_freed() {
    let (store, volume) = store();
    let upload = start_upload(&store);
    (1..=3).for_each(|number| {
        store.commit(part(&upload, number, body(MIB))).wait().unwrap();
    });
    store.commit(complete(&upload, &[1, 3])).wait().unwrap();
    assert_eq!(body_blocks(&store, &volume).len(), 2 * MIB / 4096);
    audit(&store, &volume, "two parts");
}

#[test]
fn a_copied_range_keeps_only_its_runs() {
    let (store, volume) = store();
    let bytes = body(40 * MIB);
    let mut writer = store.body_writer(bytes.len() as u64);
    bytes.chunks(MIB).for_each(|piece| writer.write(piece).unwrap());
    let Change::Put(put) = put("bucket", "source", b"") else { panic!("no put") };
    store.commit(Change::Put(PutObject { body: writer.finish().unwrap(), ..put })).wait().unwrap();
    let upload = start_upload(&store);
    let range = 20 * MIB as u64 + 100..21 * MIB as u64 + 100;
    store.commit(copy_part(object("bucket", "source"), range, &upload, 1)).wait().unwrap();
    store.commit(complete(&upload, &[1])).wait().unwrap();
    delete(&store, "source");
    assert_eq!(body_blocks(&store, &volume).len(), 16 * MIB / 4096, "one run of 16 MiB");
    assert!(read(&store, "upload") == bytes[20 * MIB + 100..21 * MIB + 100]);
    drain(&store, &volume, "range");
}

#[test]
fn a_writer_that_outlives_the_store_leaves_no_block() {
    let (store, volume) = store();
    let mut writer = store.body_writer(MIB as u64);
    writer.write(&body(MIB / 2)).unwrap();
    drop(store);
    assert!(!volume.stored_blocks(BODIES_START / 4096..u64::MAX).is_empty());
    drop(writer);
    let store = VolumeStore::open(volume.clone(), options()).unwrap();
    audit(&store, &volume, "a new start");
}
