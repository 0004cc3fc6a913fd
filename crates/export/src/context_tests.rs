//! Placement of queues on reactors.

use std::rc::Rc;

use reactor::{Clock, ParkDriver, Reactor, SystemClock};

use super::*;
use crate::MemoryVolume;

struct PlacedVolume(Vec<Remote>);

impl VolumeSource for PlacedVolume {
    type Volume = MemoryVolume;

    fn size(&self) -> u64 {
        8 << 20
    }

    fn sector(&self) -> u32 {
        4096
    }

    fn reactors(&self) -> Vec<Remote> {
        self.0.clone()
    }

    fn identity(&self) -> [u8; 16] {
        [1; 16]
    }

    fn open(&self) -> MemoryVolume {
        MemoryVolume::new(self.size(), self.sector())
    }
}

/// Three reactors that never run, and a set of them.
fn three_reactors() -> (Vec<Reactor>, ReactorSet) {
    let new_reactor = || {
        let clock: Rc<dyn Clock> = Rc::new(SystemClock::new());
        Reactor::new(ParkDriver::new(clock.clone()), clock)
    };
    let reactors: Vec<Reactor> = std::iter::repeat_with(new_reactor).take(3).collect();
    let remotes: Vec<Remote> = reactors.iter().map(Reactor::remote).collect();
    let set = ReactorSet::new(&remotes, Backend::Threads, || unreachable!("no reactor runs"));
    (reactors, set)
}

fn indices(set: &ReactorSet, placed: &[Remote]) -> Vec<usize> {
    let index = |one: &Remote| set.all().iter().position(|other| other.is_same(one)).unwrap();
    placed.iter().map(index).collect()
}

#[test]
fn queues_are_placed_with_the_volume_unless_configured() {
    let (_reactors, set) = three_reactors();
    let config = |reactors: &[u32]| ExportConfig { reactors: reactors.to_vec(), ..ExportConfig::default() };
    let some = PlacedVolume(set.all()[1..].to_vec());
    assert_eq!(indices(&set, &set.place(&config(&[]), &some).unwrap()), [1, 2]);
    assert_eq!(indices(&set, &set.place(&config(&[2, 0]), &some).unwrap()), [2, 0]);
    for everywhere in [PlacedVolume(set.all().to_vec()), PlacedVolume(Vec::new())] {
        let place = || indices(&set, &set.place(&config(&[]), &everywhere).unwrap());
        let (first, second) = (place(), place());
        assert_ne!(first, second, "exports start at different reactors");
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2]);
    }
}

#[test]
fn invalid_options_are_refused() {
    let (_reactors, set) = three_reactors();
    let missing = ExportConfig { reactors: vec![0, 3], ..ExportConfig::default() };
    let error = set.configured(&missing).err().unwrap();
    assert_eq!(error.kind(), ExportErrorKind::Invalid);
    assert!(error.to_string().contains("there is no reactor 3: the daemon runs 3"), "{error}");
    for (queues, valid) in [(0, false), (1, true), (64, true), (65, false)] {
        let config = ExportConfig { queues: Some(queues), ..ExportConfig::default() };
        assert_eq!(check_queue_count(&config, 64).is_ok(), valid, "{queues}");
        assert!(check_no_queues(&config).is_err());
    }
}
