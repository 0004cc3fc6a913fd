//! Power cuts under puts and deletions of several keys at once, with a plain map as the model.
//!
//! After each cut, every acknowledged change is there, every other one is there completely or not
//! at all, counters match the objects, and no block is left after all objects are deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::cut_device::{CutDevice, SIZE};
use super::readers::{create, put};
use super::same_results::{bytes_of_bodies, delete_all, options};
use crate::{Change, Conditions, DeleteObject, ListQuery, MemoryBlocks, ObjectRef, ObjectStore, VolumeStore};

/// The states that a key may have: the last acknowledged one, and those of later changes.
type Model = BTreeMap<String, Vec<Option<Vec<u8>>>>;

struct Life {
    random: SmallRng,
    model: Model,
}

impl Life {
    /// Runs changes from several threads' queues until the device fails. Returns true if it did.
    fn run(&mut self, device: &Arc<CutDevice>) -> bool {
        let Ok(store) = VolumeStore::open(device.clone(), options()) else { return true };
        let created = store.commit(create("bucket")).wait();
        if created.is_err_and(|error| error.kind() == crate::ObjectErrorKind::Io) {
            return true;
        }
        for _ in 0..60 {
            let mut group = Vec::new();
            // Distinct keys, so that the order within the group does not matter.
            let first = self.random.random_range(0..40);
            for key in first..first + self.random.random_range(1..6) {
                let key = format!("key{}", key % 40);
                let (change, state) = self.change(&key);
                self.model.entry(key.clone()).or_insert_with(|| vec![None]).push(state.clone());
                group.push((key, state, store.commit(change)));
            }
            let mut has_failed = false;
            for (key, state, pending) in group {
                if pending.wait().is_ok() {
                    self.model.insert(key, vec![state]);
                } else {
                    has_failed = true;
                }
            }
            if has_failed {
                return true;
            }
        }
        false
    }

    fn change(&mut self, key: &str) -> (Change, Option<Vec<u8>>) {
        if self.random.random_bool(0.3) {
            let object = ObjectRef { bucket: "bucket".into(), key: key.into(), version: None };
            let conditions = Conditions::default();
            let delete = DeleteObject { object, conditions, bypass_governance: false, now_ms: 0 };
            return (Change::Delete(delete), None);
        }
        let length = [10, 1000, 5000, 70_000][self.random.random_range(0..4)];
        let mut body = vec![0; length];
        self.random.fill(body.as_mut_slice());
        (put("bucket", key, &body), Some(body))
    }

    /// Compares the store with the model, and makes its state the model's.
    fn verify(&mut self, store: &VolumeStore) {
        let (mut objects, mut bytes) = (0, 0);
        for (key, states) in &mut self.model {
            let object = ObjectRef { bucket: "bucket".into(), key: key.clone(), version: None };
            let found = store.open(&object).ok().map(|(info, reader)| {
                let body = reader.read(0, usize::MAX >> 1).unwrap().to_vec();
                assert_eq!(body.len() as u64, info.size);
                objects += 1;
                bytes += info.size;
                body
            });
            assert!(states.contains(&found), "{key} has a state that no change gave it");
            *states = vec![found];
        }
        let Ok(bucket) = store.bucket("bucket") else { return assert_eq!(objects, 0) };
        assert_eq!((bucket.counters.objects, bucket.counters.bytes), (objects, bytes));
        let query = ListQuery { bucket: "bucket".into(), limit: 1000, ..ListQuery::default() };
        assert_eq!(store.list(&query).unwrap().entries.len() as u64, objects);
    }
}

fn one_seed(seed: u64) -> usize {
    let durable = Arc::new(MemoryBlocks::new(SIZE));
    let mut life = Life { random: SmallRng::seed_from_u64(seed), model: Model::new() };
    let mut cuts = 0;
    for _ in 0..6 {
        let operations = [3, 30, 300, 1000][life.random.random_range(0..4)];
        let operations = life.random.random_range(1..operations);
        let device = CutDevice::new(durable.clone(), operations);
        cuts += usize::from(life.run(&device));
        device.cut(&mut life.random);
        let store = VolumeStore::open(durable.clone(), options()).unwrap();
        life.verify(&store);
    }
    let store = VolumeStore::open(durable.clone(), options()).unwrap();
    delete_all(&store);
    store.wait_for_reclaim();
    assert_eq!(bytes_of_bodies(&durable), 0, "seed {seed}: blocks without an object");
    cuts
}

#[test]
fn no_acknowledged_change_is_lost() {
    let cuts: usize = (0..40).map(one_seed).sum();
    assert!(cuts > 100, "only {cuts} power cuts");
}
