//! Power cuts: a device that loses any of its unflushed blocks, and a plain map as the model.
//!
//! After each cut, every acknowledged change is there, every other one is there completely or not
//! at all, counters match the objects, and no block is left after all objects are deleted.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::readers::{create, put};
use super::same_results::{BODIES_START, bytes_of_bodies, delete_all, options};
use crate::{
    BlockVolume, Change, Conditions, DeleteObject, ListQuery, MemoryBlocks, ObjectRef, ObjectStore,
    VolumeStore,
};

pub(super) const SIZE: u64 = 256 << 20;

/// A device with a volatile cache that fails after a number of operations.
#[derive(Debug)]
pub(super) struct CutDevice {
    durable: Arc<MemoryBlocks>,
    state: Mutex<CutState>,
}

#[derive(Debug)]
struct CutState {
    /// Unflushed blocks in order; `None` for discarded ones.
    cache: Vec<(u64, Option<Vec<u8>>)>,
    operations_left: usize,
}

impl CutDevice {
    pub(super) fn new(durable: Arc<MemoryBlocks>, operations: usize) -> Arc<Self> {
        let state = CutState { cache: Vec::new(), operations_left: operations };
        Arc::new(Self { durable, state: Mutex::new(state) })
    }

    /// Returns true if an operation failed, or the next one would.
    pub(super) fn is_off(&self) -> bool {
        self.state.lock().unwrap().operations_left == 0
    }

    /// Loses power: any of the cached blocks may have reached the medium. In some cases those are
    /// all blocks of the index and few of the bodies, or the reverse.
    pub(super) fn cut(&self, random: &mut SmallRng) {
        let mut state = self.state.lock().unwrap();
        let cases = [(0.0, 0.0), (0.5, 0.5), (0.9, 0.9), (1.0, 1.0), (1.0, 0.5), (0.5, 1.0)];
        let (of_index, of_bodies) = cases[random.random_range(0..cases.len())];
        for (block, data) in std::mem::take(&mut state.cache) {
            let share = if block * 4096 < BODIES_START { of_index } else { of_bodies };
            if random.random_bool(share) {
                store(&self.durable, block, data);
            }
        }
    }
}

fn store(volume: &MemoryBlocks, block: u64, data: Option<Vec<u8>>) {
    match data {
        Some(data) => volume.write(block * 4096, &data).unwrap(),
        None => volume.discard(block * 4096, 4096).unwrap(),
    }
}

impl CutState {
    fn count(&mut self) -> io::Result<()> {
        self.operations_left = self.operations_left.checked_sub(1).ok_or_else(off)?;
        Ok(())
    }
}

fn off() -> io::Error {
    io::Error::other("the power is off")
}

impl BlockVolume for CutDevice {
    fn size(&self) -> u64 {
        SIZE
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock().unwrap();
        if state.operations_left == 0 {
            return Err(off());
        }
        self.durable.read(offset, into)?;
        let end = offset + into.len() as u64;
        for (block, data) in &state.cache {
            let (from, to) = ((block * 4096).max(offset), ((block + 1) * 4096).min(end));
            if from < to {
                let index = |value: u64| usize::try_from(value).unwrap();
                let into = &mut into[index(from - offset)..index(to - offset)];
                match data {
                    Some(data) => {
                        into.copy_from_slice(&data[index(from - block * 4096)..index(to - block * 4096)])
                    }
                    None => into.fill(0),
                }
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        assert!(offset.is_multiple_of(4096) && data.len().is_multiple_of(4096), "{offset}+{}", data.len());
        let mut state = self.state.lock().unwrap();
        state.count()?;
        for (index, data) in data.chunks(4096).enumerate() {
            state.cache.push((offset / 4096 + index as u64, Some(data.to_vec())));
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.count()?;
        for (block, data) in std::mem::take(&mut state.cache) {
            store(&self.durable, block, data);
        }
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.count()?;
        let (first, end) = (offset / 4096, (offset + length) / 4096);
        state.cache.retain(|(block, _)| !(first..end).contains(block));
        // Blocks without data stay without data.
        let stored = self.durable.stored_blocks(first..end);
        state.cache.extend(stored.into_iter().map(|block| (block, None)));
        Ok(())
    }
}

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
                let body = reader.read(0, usize::MAX >> 1).unwrap();
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
