//! Random changes of all kinds in groups, cut at random operations, against the store in memory.
//!
//! The changes are queued by one thread, so after each cut the store shows the state after some
//! number of them: at least all answered ones. The answers match those of the store in memory.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::audit::{audit, describe, drain, setting};
use super::cut_device::{CutDevice, SIZE};
use super::random::{Random, copy_of, stream_body};
use super::same_results::{options, oracle};
use crate::{
    BodyReader, Change, ChangeSource, MemoryBlocks, MemoryStore, ObjectErrorKind, ObjectStore, Outcome,
    Pending, VolumeStore,
};

/// The answer to a change, without the text of errors; `None` without an answer.
type Answer = Option<Result<Outcome, ObjectErrorKind>>;

/// A store through several power cuts.
struct History {
    seed: u64,
    numbers: SmallRng,
    random: Random,
    oracle: MemoryStore,
    /// The changes since the last cut, and their answers.
    queued: Vec<(Change, ChangeSource, Answer)>,
}

impl History {
    /// Runs groups of changes until the device fails, or for some time, and closes the store.
    fn run(&mut self, device: &Arc<CutDevice>) {
        let Ok(store) = VolumeStore::open(device.clone(), options()) else { return };
        let mut readers = Vec::new();
        // Bodies that no change takes over.
        let mut unused = Vec::new();
        for _ in 0..self.numbers.random_range(1..30) {
            if self.numbers.random_bool(0.2) {
                readers.extend(self.open_one(&store));
            }
            if self.numbers.random_bool(0.1) {
                let mut writer = store.body_writer(self.numbers.random_range(0..400_000));
                if writer.write(&vec![9; 4096 * self.numbers.random_range(1..40)]).is_ok() {
                    unused.push(writer);
                }
            }
            if unused.len() > 2 {
                unused.clear();
            }
            if !self.run_group(&store) {
                break;
            }
        }
        for (reader, body) in readers {
            // Without power there is no answer, but never another one.
            if let Ok(found) = reader.read(0, 1 << 20) {
                assert!(found == body, "seed {}: the body of an open object has changed", self.seed);
            }
        }
        // Some requests outlive the store that is closed.
        if self.numbers.random_bool(0.5) {
            unused.clear();
        }
        drop(store);
    }

    fn open_one(&mut self, store: &VolumeStore) -> Option<(Box<dyn BodyReader>, Vec<u8>)> {
        let (_, reader) = store.open(&self.random.object()).ok()?;
        let body = reader.read(0, 1 << 20).ok()?.to_vec();
        Some((reader, body))
    }

    /// Queues changes and waits for the answers. Returns false if the device has failed.
    fn run_group(&mut self, store: &VolumeStore) -> bool {
        let mut pending: Vec<Pending> = Vec::new();
        let first = self.queued.len();
        let mut is_on = true;
        for _ in 0..self.numbers.random_range(1..8) {
            let change = self.random.change();
            let mut streamed = copy_of(&change);
            if stream_body(store, &mut streamed).is_err() {
                is_on = false;
                break;
            }
            let source = self.random.source();
            self.queued.push((change, source.clone(), None));
            pending.push(store.commit_from(streamed, source));
        }
        for (answer, (_, _, place)) in pending.into_iter().zip(self.queued.iter_mut().skip(first)) {
            match answer.wait().map_err(|error| error.kind()) {
                Err(ObjectErrorKind::Io | ObjectErrorKind::Closed) => is_on = false,
                answer => *place = Some(answer),
            }
        }
        for (_, _, answer) in self.queued.iter().skip(first) {
            match answer {
                Some(Ok(Outcome::Upload(id))) => self.random.uploads.push(id.clone()),
                Some(Ok(Outcome::Object(info))) => self.random.versions.push(info.version.clone()),
                _ => {}
            }
        }
        is_on
    }

    /// Advances the store in memory to the state of the store on the volume.
    fn follow(&mut self, found: &str, sequence: u64, case: &str) {
        let least =
            self.queued.iter().rposition(|(_, _, answer)| answer.is_some()).map_or(0, |last| last + 1);
        let mut queued = std::mem::take(&mut self.queued).into_iter();
        for (change, source, answer) in queued.by_ref().take(least) {
            let shown = format!("{change:?}").chars().take(300).collect::<String>();
            let expected = self.oracle.commit_from(change, source).wait().map_err(|error| error.kind());
            assert!(answer.is_none_or(|answer| answer == expected), "{case}: another answer to {shown}");
        }
        loop {
            if self.oracle.last_sequence() == sequence && describe(&self.oracle) == found {
                return;
            }
            let Some((change, source, _)) = queued.next() else {
                panic!("{case}: no state between changes:\n{found}\nexpected:\n{}", describe(&self.oracle));
            };
            // Changes that were never answered may be refused.
            let _ = self.oracle.commit_from(change, source).wait();
        }
    }
}

/// Runs a store through power cuts. Returns their number.
fn one_seed(seed: u64) -> usize {
    let durable = Arc::new(MemoryBlocks::new(SIZE));
    let mut history = History {
        seed,
        numbers: SmallRng::seed_from_u64(seed),
        random: Random::new(seed ^ 0x5eed),
        oracle: oracle(),
        queued: Vec::new(),
    };
    let mut cuts = 0;
    for life in 0..8 {
        let case = format!("seed {seed}, life {life}");
        let most = [10, 60, 200, 1000][history.numbers.random_range(0..4)];
        let device = CutDevice::new(durable.clone(), history.numbers.random_range(1..most));
        history.run(&device);
        cuts += usize::from(device.is_off());
        device.cut(&mut history.numbers);
        while history.numbers.random_bool(0.3) {
            let device = CutDevice::new(durable.clone(), history.numbers.random_range(0..20));
            drop(VolumeStore::open(device.clone(), options()));
            device.cut(&mut history.numbers);
        }
        let store = VolumeStore::open(durable.clone(), options()).unwrap();
        let sequence = audit(&store, &durable, &case);
        history.follow(&describe(&store), sequence, &case);
    }
    let store = VolumeStore::open(durable.clone(), options()).unwrap();
    drain(&store, &durable, &format!("seed {seed}, end"));
    cuts
}

#[test]
fn random_changes_survive_power_cuts() {
    let first = setting("GABION_OBJECT_FIRST_SEED", 0);
    let count = setting("GABION_OBJECT_SEEDS", 60);
    let cuts: usize = (first..first + count).map(one_seed).sum();
    assert!(cuts as u64 > 2 * count, "only {cuts} power cuts of {count} seeds");
}
