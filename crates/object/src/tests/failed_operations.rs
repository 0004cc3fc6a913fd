//! One failed write, flush or discard at every device operation of every kind of change.
//!
//! The store answers an error or hides it, never acknowledges what is lost, and leaves no block
//! behind. A body that cannot be stored is refused alone.

use std::io::ErrorKind;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::audit::{audit, describe, drain};
use super::cut_device::CutDevice;
use super::random::{copy_of, stream_body};
use super::readers::put;
use super::same_results::{options, oracle};
use super::scenarios::{Scenario, singles};
use crate::{Change, ObjectStore, VolumeStore};

/// The states that a failure may leave: without and with the change, each without and with a put
/// after it.
struct Outcomes {
    states: [[String; 2]; 2],
}

fn later() -> Change {
    put("versioned", "later", &[1; 6000])
}

impl Outcomes {
    fn new(scenario: &Scenario) -> Self {
        let change = scenario.changes.first().unwrap();
        let state = |has_change: bool, has_later: bool| {
            let oracle = oracle();
            super::scenarios::prepare(&oracle);
            for change in has_change.then(|| copy_of(change)).into_iter().chain(has_later.then(later)) {
                oracle.commit(change).wait().unwrap();
            }
            describe(&oracle)
        };
        Self { states: [false, true].map(|change| [false, true].map(|later| state(change, later))) }
    }
}

/// Runs the change with one failed operation. Returns false if no operation failed.
fn fail(scenario: &Scenario, outcomes: &Outcomes, operations: usize, kind: ErrorKind) -> bool {
    let case = format!("{}: {kind:?} at operation {operations}", scenario.name);
    let random = || SmallRng::seed_from_u64(operations as u64);
    let durable = Arc::new(scenario.base.copy());
    let device = CutDevice::failing(durable.clone(), operations, kind, random());
    let mut acknowledged = [false; 2];
    if let Ok(store) = VolumeStore::open(device.clone(), options()) {
        let was_open = !device.is_off();
        for (index, change) in [scenario.changes.first().unwrap(), &later()].into_iter().enumerate() {
            let mut change = copy_of(change);
            let result = stream_body(&store, &mut change).and_then(|()| store.commit(change).wait());
            acknowledged[index] = result.is_ok();
        }
        if was_open && kind == ErrorKind::StorageFull && !device.has_failed_flush() {
            assert!(acknowledged[0] || acknowledged[1], "{case}: a full pool stops the store");
        }
    }
    let has_failed = device.is_off();
    let mut random = random();
    if random.random_bool(0.5) {
        device.cut(&mut random);
    } else {
        device.settle();
    }
    let store = VolumeStore::open(durable.clone(), options()).unwrap();
    audit(&store, &durable, &case);
    let found = describe(&store);
    let is_allowed = [false, true].into_iter().any(|change| {
        [false, true].into_iter().any(|later| {
            let is_there = [change, later];
            let is_consistent = (0..2).all(|index| is_there[index] || !acknowledged[index]);
            is_consistent && outcomes.states[usize::from(change)][usize::from(later)] == found
        })
    });
    assert!(is_allowed, "{case}: acknowledged {acknowledged:?}:\n{found}");
    drain(&store, &durable, &case);
    has_failed
}

#[test]
fn every_operation_of_every_change_fails_once() {
    let mut failures = 0;
    for scenario in singles() {
        let outcomes = Outcomes::new(&scenario);
        for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
            failures += (0..).take_while(|at| fail(&scenario, &outcomes, *at, kind)).count();
        }
    }
    assert!(failures > 400, "only {failures} operations failed");
}

/// A body is written, another one's flush fails and loses both, and only then the first is put.
#[test]
fn a_failed_flush_refuses_all_later_changes() {
    let scenario = singles().swap_remove(0);
    for operations in 0..30 {
        let durable = Arc::new(scenario.base.copy());
        let random = SmallRng::seed_from_u64(operations as u64);
        let device = CutDevice::failing(durable.clone(), operations, ErrorKind::Other, random);
        let Ok(store) = VolumeStore::open(device.clone(), options()) else { continue };
        let body = vec![7; 400_000];
        let mut writer = store.body_writer(400_000);
        let Ok(()) = body.chunks(1 << 16).try_for_each(|piece| writer.write(piece)) else { continue };
        let _ = store.commit(put("plain", "other", &[8; 5000])).wait();
        let Change::Put(streamed) = put("plain", "streamed", b"") else { panic!("no put") };
        let body_stored = writer.finish().unwrap();
        let change = Change::Put(crate::PutObject { body: body_stored, ..streamed });
        let is_acknowledged = store.commit(change).wait().is_ok();
        drop(store);
        let store = VolumeStore::open(durable, options()).unwrap();
        let found = store.open(&super::scenarios::object("plain", "streamed"));
        assert!(!is_acknowledged || found.is_ok(), "operation {operations}: an acknowledged put is lost");
        if let Ok((_, reader)) = found {
            assert!(reader.read(0, 1 << 20).unwrap() == body, "operation {operations}: lost bytes");
        }
    }
}
