//! A power cut at every device operation of every kind of change, alone and in histories, and
//! during the recovery from it.
//!
//! After each cut, the store shows a state between two changes, none of which is older than the
//! last acknowledged one; references, counters and blocks match it; and no block is left after all
//! objects are deleted.

use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::audit::{audit, drain, setting};
use super::cut_device::CutDevice;
use super::random::{copy_of, stream_body};
use super::same_results::options;
use super::scenarios::{Scenario, histories, singles, state_text};
use crate::layout::ObjectSuperblock;
use crate::{ObjectStore, VolumeStore};

impl Scenario {
    /// Opens the store, runs the changes and closes the store on a device that fails after some
    /// operations; in every second case the recovery fails too. Returns true if the device failed
    /// before the end.
    fn cut(&self, operations: usize, seed: u64) -> bool {
        let mut random = SmallRng::seed_from_u64(seed << 32 | operations as u64);
        let durable = Arc::new(self.base.copy());
        let device = CutDevice::new(durable.clone(), operations);
        let acknowledged = self.run(device.clone(), seed % 2 == 1);
        let was_cut = device.is_off();
        device.cut(&mut random);
        if random.random_bool(0.5) {
            let device = CutDevice::new(durable.clone(), random.random_range(0..12));
            drop(VolumeStore::open(device.clone(), options()));
            device.cut(&mut random);
        }
        let store = VolumeStore::open(durable.clone(), options()).unwrap();
        let case = format!("{}: power cut after {operations} operations, seed {seed}", self.name);
        let found = state_text(&store, audit(&store, &durable, &case));
        let allowed = self.states.get(acknowledged..).unwrap();
        assert!(allowed.contains(&found), "{case}, {acknowledged} changes acknowledged:\n{found}");
        let is_complete = acknowledged == self.changes.len();
        assert!(was_cut || is_complete, "{case}: refused without a cut");
        if seed == 0 {
            drain(&store, &durable, &case);
        }
        was_cut
    }

    /// Runs the changes, each after the answer to the one before, or all at once. Returns the
    /// number of acknowledged ones.
    fn run(&self, device: Arc<CutDevice>, at_once: bool) -> usize {
        let Ok(store) = VolumeStore::open(device, options()) else { return 0 };
        let mut pending = Vec::new();
        let mut acknowledged = 0;
        for change in &self.changes {
            let mut change = copy_of(change);
            if stream_body(&store, &mut change).is_err() {
                break;
            }
            let answer = store.commit(change);
            if at_once {
                pending.push(answer);
            } else if answer.wait().is_ok() {
                acknowledged += 1;
            } else {
                break;
            }
        }
        let answers: Vec<bool> = pending.into_iter().map(|answer| answer.wait().is_ok()).collect();
        assert!(answers.is_sorted_by(|before, after| before >= after), "{}: {answers:?}", self.name);
        acknowledged + answers.into_iter().filter(|is_ok| *is_ok).count()
    }
}

/// Cuts every operation of the scenarios. Returns the number of cuts.
fn sweep(scenarios: &[Scenario]) -> usize {
    let seeds = setting("GABION_OBJECT_CUT_SEEDS", 2);
    let mut cuts = 0;
    for scenario in scenarios {
        for seed in 0..seeds {
            cuts += (0..).take_while(|operations| scenario.cut(*operations, seed)).count();
        }
    }
    cuts
}

#[test]
fn every_operation_of_every_change_is_cut() {
    let scenarios = singles();
    let cuts = sweep(&scenarios);
    assert!(cuts > scenarios.len() * 16, "only {cuts} operations of {} changes were cut", scenarios.len());
}

#[test]
fn every_operation_of_histories_is_cut() {
    let scenarios = histories();
    let cuts = sweep(&scenarios);
    assert!(cuts > scenarios.len() * 30, "only {cuts} operations of {} histories", scenarios.len());
}

#[test]
fn a_history_makes_the_index_grow_and_shrink() {
    let scenarios = histories();
    let growth = scenarios.iter().find(|scenario| scenario.name.starts_with("growth")).unwrap();
    let volume = Arc::new(growth.base.copy());
    let length = || ObjectSuperblock::load(&*volume).unwrap().unwrap().index_len;
    let before = length();
    let store = VolumeStore::open(volume.clone(), options()).unwrap();
    let mut lengths = Vec::new();
    for change in &growth.changes {
        store.commit(copy_of(change)).wait().unwrap();
        lengths.push(length());
    }
    drop(store);
    let largest = lengths.iter().max().copied().unwrap();
    assert!(largest > before, "{before} {lengths:?}");
    assert!(length() < largest, "{lengths:?} {}", length());
}
