//! A power cut at every device operation of every kind of change.
//!
//! After each cut, the store shows the state before the change or the one after it, and the latter
//! if the change was acknowledged; no block is left after all objects are deleted.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::power_cut::{CutDevice, SIZE};
use super::random::{copy_of, stream_body};
use super::readers::{create, put};
use super::same_results::{bytes_of_bodies, delete_all, options};
use crate::{
    Body, Change, Conditions, CopyObject, CopyPart, Counters, DeleteObject, ListQuery, MemoryBlocks,
    MemoryStore, ObjectLock, ObjectRef, ObjectStore, Outcome, PutPart, Retention, RetentionMode, Versioning,
    VolumeStore,
};

fn object(bucket: &str, key: &str) -> ObjectRef {
    ObjectRef { bucket: bucket.into(), key: key.into(), version: None }
}

fn delete(bucket: &str, key: &str, version: Option<String>) -> Change {
    let object = ObjectRef { version, ..object(bucket, key) };
    let conditions = Conditions::default();
    Change::Delete(DeleteObject { object, conditions, bypass_governance: false, now_ms: 1 })
}

fn part(upload: &str, number: u16, length: usize) -> Change {
    Change::PutPart(PutPart {
        upload: upload.into(),
        number,
        body: Body::Bytes(vec![3; length]),
        size: None,
        etag: format!("part{number}"),
        attributes: BTreeMap::new(),
        now_ms: 1,
    })
}

/// The changes that make the state before each cut: the same on both stores.
fn prepare(store: &dyn ObjectStore) -> (String, String) {
    let done = |change| store.commit(change).wait().unwrap();
    done(create("plain"));
    done(create("versioned"));
    done(create("empty"));
    done(Change::SetVersioning { bucket: "versioned".into(), versioning: Versioning::Enabled });
    done(put("plain", "inline", &[1; 100]));
    done(put("plain", "body", &[2; 50_000]));
    let Outcome::Object(first) = done(put("versioned", "key", &[3; 20_000])) else { panic!("no object") };
    done(put("versioned", "key", &[4; 30_000]));
    let (key, attributes) = ("upload".into(), BTreeMap::new());
    let upload = done(Change::CreateUpload { bucket: "plain".into(), key, attributes, now_ms: 1 });
    let Outcome::Upload(upload) = upload else { panic!("no upload") };
    done(part(&upload, 1, 9000));
    done(part(&upload, 2, 70_000));
    (upload, first.version)
}

fn changes(upload: &str, version: &str) -> Vec<Change> {
    let copy = CopyObject {
        source: object("plain", "body"),
        source_conditions: Conditions::default(),
        bucket: "versioned".into(),
        key: "copy".into(),
        attributes: None,
        lock: ObjectLock::default(),
        conditions: Conditions::default(),
        now_ms: 1,
    };
    let copy_part = CopyPart {
        source: object("plain", "body"),
        source_conditions: Conditions::default(),
        range: Some(100..9000),
        upload: upload.into(),
        number: 3,
        etag: "copied".into(),
        now_ms: 1,
    };
    let complete = Change::CompleteUpload {
        upload: upload.into(),
        parts: vec![(1, "part1".into()), (2, "part2".into())],
        etag: "complete".into(),
        attributes: BTreeMap::new(),
        lock: ObjectLock::default(),
        part_bytes_min: 1,
        conditions: Conditions::default(),
        now_ms: 1,
    };
    let retention = Some(Retention { mode: RetentionMode::Governance, until_ms: 5 });
    vec![
        create("new"),
        Change::DeleteBucket { name: "empty".into() },
        Change::SetBucket { bucket: "plain".into(), name: "policy".into(), value: Some("{}".into()) },
        Change::SetQuota { bucket: "plain".into(), quota: Some(1 << 30) },
        Change::SetVersioning { bucket: "plain".into(), versioning: Versioning::Enabled },
        put("plain", "new", &[5; 100]),
        put("plain", "new", &[5; 40_000]),
        put("plain", "streamed", &vec![6; 300_000]),
        put("plain", "body", &[7; 60_000]),
        put("versioned", "key", &[8; 5000]),
        Change::Copy(copy),
        delete("plain", "body", None),
        delete("versioned", "key", None),
        delete("versioned", "key", Some(version.into())),
        Change::SetAttribute {
            object: object("plain", "body"),
            name: "tags".into(),
            value: Some("a=b".into()),
        },
        Change::SetRetention {
            object: object("plain", "body"),
            retention,
            bypass_governance: false,
            now_ms: 1,
        },
        Change::SetLegalHold { object: object("plain", "inline"), legal_hold: true },
        Change::CreateUpload {
            bucket: "plain".into(),
            key: "other".into(),
            attributes: BTreeMap::new(),
            now_ms: 1,
        },
        part(upload, 2, 20_000),
        Change::CopyPart(copy_part),
        complete,
        Change::AbortUpload { upload: upload.into() },
    ]
}

/// Describes all that callers can see, and compares the counters with the listing.
fn describe(store: &dyn ObjectStore) -> String {
    let mut text = String::new();
    for bucket in store.buckets().unwrap() {
        writeln!(text, "{bucket:?}").unwrap();
        let query = ListQuery { bucket: bucket.name.clone(), limit: 1000, ..ListQuery::default() };
        let mut counted = Counters::default();
        for version in store.list_versions(&query).unwrap().entries {
            writeln!(text, "{version:?}").unwrap();
            let is_object = version.is_latest && !version.is_marker;
            *if is_object { &mut counted.objects } else { &mut counted.versions } += 1;
            counted.bytes += version.size;
            if !version.is_marker {
                let named = object(&bucket.name, &version.key);
                let (info, reader) =
                    store.open(&ObjectRef { version: Some(version.version), ..named }).unwrap();
                let body = reader.read(0, 1 << 20).unwrap();
                assert_eq!(body.len() as u64, info.size, "{info:?}");
                let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, &body);
                writeln!(text, "{info:?} {sum:x}").unwrap();
            }
        }
        assert_eq!(bucket.counters, counted, "counters of {} and its listing", bucket.name);
        let current = store.list(&query).unwrap().entries;
        assert_eq!(current.len() as u64, counted.objects, "{current:?}");
        for upload in store.uploads(&bucket.name).unwrap() {
            writeln!(text, "{upload:?} {:?}", store.parts(&upload.id, 0, 1000).unwrap()).unwrap();
        }
    }
    text
}

/// A change on a prepared store, and all that callers see before and after it.
struct Case {
    /// The store before the change.
    volume: MemoryBlocks,
    change: Change,
    before: String,
    after: String,
}

impl Case {
    fn new(index: usize) -> Self {
        let volume = Arc::new(MemoryBlocks::new(SIZE));
        let oracle = MemoryStore::default();
        let (upload, version) = prepare(&VolumeStore::open(volume.clone(), options()).unwrap());
        assert_eq!(prepare(&oracle), (upload.clone(), version.clone()));
        let before = describe(&oracle);
        let change = changes(&upload, &version).swap_remove(index);
        oracle.commit(copy_of(&change)).wait().unwrap();
        let after = describe(&oracle);
        assert_ne!(before, after, "a change without an effect shows nothing");
        Self { volume: volume.copy(), change, before, after }
    }

    /// Opens the store, runs the change and closes the store on a device that fails after some
    /// operations; in every second case the recovery fails too. Returns true if the device failed
    /// before the end.
    fn cut(&self, operations: usize, seed: u64) -> bool {
        let mut random = SmallRng::seed_from_u64(seed << 32 | operations as u64);
        let durable = Arc::new(self.volume.copy());
        let device = CutDevice::new(durable.clone(), operations);
        let was_acknowledged = self.run(device.clone());
        let was_cut = device.is_off();
        device.cut(&mut random);
        if random.random_bool(0.5) {
            let device = CutDevice::new(durable.clone(), random.random_range(0..12));
            drop(VolumeStore::open(device.clone(), options()));
            device.cut(&mut random);
        }
        let store = VolumeStore::open(durable.clone(), options()).unwrap();
        let found = describe(&store);
        let change = format!("{:?}", self.change).chars().take(100).collect::<String>();
        let case = format!("{change}: power cut after {operations} operations, seed {seed}");
        let is_allowed = found == self.after || (found == self.before && !was_acknowledged);
        assert!(is_allowed, "{case}, acknowledged: {was_acknowledged}:\n{found}");
        assert!(was_cut || was_acknowledged, "{case}: refused without a cut");
        delete_all(&store);
        store.wait_for_reclaim();
        assert_eq!(bytes_of_bodies(&durable), 0, "{case}: blocks without an object");
        was_cut
    }

    /// Returns true if the store acknowledged the change.
    fn run(&self, device: Arc<CutDevice>) -> bool {
        let Ok(store) = VolumeStore::open(device, options()) else { return false };
        let mut change = copy_of(&self.change);
        stream_body(&store, &mut change).is_ok() && store.commit(change).wait().is_ok()
    }
}

#[test]
fn every_operation_of_every_change_is_cut() {
    let count = changes("", "").len();
    let mut cuts = 0;
    for index in 0..count {
        let case = Case::new(index);
        let is_cut = |operations: &usize| (0..6).any(|seed| case.cut(*operations, seed));
        cuts += (0..).take_while(is_cut).count();
    }
    assert!(cuts > count * 8, "only {cuts} operations of {count} changes were cut");
}
