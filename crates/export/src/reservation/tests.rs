//! The rules of reservations, and their storage.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::table::ReservationTable;
use super::*;

const TYPES: [ReservationType; 6] = [
    ReservationType::WriteExclusive,
    ReservationType::ExclusiveAccess,
    ReservationType::WriteExclusiveRegistrants,
    ReservationType::ExclusiveAccessRegistrants,
    ReservationType::WriteExclusiveAll,
    ReservationType::ExclusiveAccessAll,
];

fn register(new: u64) -> ReservationChange {
    ReservationChange::Register { current: None, new, persist: None }
}

fn table(hosts: &[(&str, u64)]) -> ReservationTable {
    let mut table = ReservationTable::default();
    for (host, key) in hosts {
        table.change(host, register(*key)).unwrap();
    }
    table
}

#[test]
fn access_depends_on_the_type() {
    // Read and write of: the holder, another registrant, any other host.
    for (kind, expected) in TYPES.into_iter().zip([
        [true, true, true, false, true, false],
        [true, true, false, false, false, false],
        [true, true, true, true, true, false],
        [true, true, true, true, false, false],
        [true, true, true, true, true, false],
        [true, true, true, true, false, false],
    ]) {
        let mut table = table(&[("a", 1), ("b", 2)]);
        table.change("a", ReservationChange::Reserve { key: 1, kind }).unwrap();
        let admitted: Vec<bool> = ["a", "b", "c"]
            .iter()
            .flat_map(|host| [AccessKind::Read, AccessKind::Write].map(|access| table.admits(host, access)))
            .collect();
        assert_eq!(admitted, expected, "{kind:?}");
        assert_eq!((table.is_holder("a"), table.is_holder("b")), (true, kind.is_held_by_all()));
        assert_eq!(ReservationType::from_number(kind.number()), Some(kind));
    }
}

#[test]
fn keys_are_checked() {
    let mut table = table(&[("a", 1)]);
    let with_key = |current, new| ReservationChange::Register { current: Some(current), new, persist: None };
    assert_eq!(table.change("a", with_key(2, 3)), Err(ReservationFailure::Conflict));
    assert_eq!(table.change("b", with_key(1, 3)), Err(ReservationFailure::Conflict));
    assert!(table.change("a", with_key(1, 3)).is_ok() && table.change("b", with_key(0, 4)).is_ok());
    assert_eq!((table.key_of("a"), table.key_of("b"), table.generation), (Some(3), Some(4), 3));
    let kind = ReservationType::WriteExclusive;
    for change in [
        ReservationChange::Reserve { key: 1, kind },
        ReservationChange::Release { key: 1, kind },
        ReservationChange::Clear { key: 4 },
        ReservationChange::Preempt { key: 9, victim: 4, kind },
    ] {
        assert_eq!(table.change("a", change), Err(ReservationFailure::Conflict), "{change:?}");
    }
}

#[test]
fn a_holder_that_unregisters_releases() {
    for kind in TYPES {
        let mut table = table(&[("a", 1), ("b", 2)]);
        table.change("a", ReservationChange::Reserve { key: 1, kind }).unwrap();
        let other = if kind == TYPES[0] { TYPES[1] } else { TYPES[0] };
        let wrong = ReservationChange::Release { key: 1, kind: other };
        assert_eq!(table.clone().change("a", wrong), Err(ReservationFailure::InvalidRelease));
        let affected = table.change("a", register(0)).unwrap();
        match kind.is_held_by_all() {
            true => assert!(table.is_holder("b") && affected.released.is_empty()),
            false => assert_eq!(
                (table.held.is_none(), affected.released.len()),
                (true, usize::from(kind.number() > 2))
            ),
        }
        table.change("b", register(0)).unwrap();
        assert_eq!((&table.held, table.registrants.len()), (&None, 0));
    }
}

#[test]
fn a_preempting_host_takes_over() {
    let kind = ReservationType::WriteExclusive;
    let mut table = table(&[("a", 1), ("b", 2), ("c", 2), ("d", 4)]);
    table.change("b", ReservationChange::Reserve { key: 2, kind }).unwrap();
    let preempt = |victim, kind| ReservationChange::Preempt { key: 1, victim, kind };
    assert_eq!(table.clone().change("a", preempt(9, kind)), Err(ReservationFailure::Conflict));
    assert_eq!(table.clone().change("a", preempt(0, kind)), Err(ReservationFailure::InvalidKey));
    // Registrants that do not hold the reservation.
    let affected = table.change("a", preempt(4, kind)).unwrap();
    assert_eq!((affected.unregistered, table.is_holder("b")), (vec!["d".to_owned()], true));
    let affected = table.change("a", preempt(2, ReservationType::ExclusiveAccess)).unwrap();
    assert_eq!(affected.unregistered, ["b", "c"]);
    assert!(table.is_holder("a") && table.registrants.len() == 1);
    // All holders of a shared reservation.
    let mut table = self::table(&[("a", 1), ("b", 2), ("c", 3)]);
    table
        .change("b", ReservationChange::Reserve { key: 2, kind: ReservationType::ExclusiveAccessAll })
        .unwrap();
    let affected = table.change("a", preempt(2, kind)).unwrap();
    assert_eq!((affected.unregistered, table.is_holder("c")), (vec!["b".to_owned()], true));
    table.change("a", preempt(0, kind)).unwrap();
    assert_eq!((table.is_holder("a"), table.registrants.len()), (true, 1));
}

fn change() -> impl Strategy<Value = (usize, ReservationChange)> {
    let kind = || prop::sample::select(TYPES.to_vec());
    let key = || 0..4u64;
    let change = prop_oneof![
        (prop::option::of(key()), key()).prop_map(|(current, new)| ReservationChange::Register {
            current,
            new,
            persist: None
        }),
        (key(), kind()).prop_map(|(key, kind)| ReservationChange::Reserve { key, kind }),
        (key(), kind()).prop_map(|(key, kind)| ReservationChange::Release { key, kind }),
        key().prop_map(|key| ReservationChange::Clear { key }),
        (key(), key(), kind()).prop_map(|(key, victim, kind)| ReservationChange::Preempt {
            key,
            victim,
            kind
        }),
    ];
    (0..3usize, change)
}

proptest! {
    #[test]
    fn a_holder_is_a_registrant(changes in prop::collection::vec(change(), 1..60)) {
        let mut table = ReservationTable::default();
        for (host, change) in changes {
            let mut next = table.clone();
            if next.change(["a", "b", "c"][host], change).is_ok() {
                table = next;
            }
            if let Some(held) = &table.held {
                prop_assert!(table.key_of(&held.holder).is_some(), "{change:?}");
            }
            let mut names: Vec<_> = table.registrants.iter().map(|registrant| &registrant.name).collect();
            names.sort();
            names.dedup();
            prop_assert_eq!(names.len(), table.registrants.len());
            prop_assert!(table.registrants.iter().all(|registrant| registrant.key != 0));
        }
    }
}

#[derive(Default)]
struct Stored(Mutex<BTreeMap<[u8; 16], StoredReservations>>);

impl ReservationStore for Stored {
    fn load(&self, volume: [u8; 16]) -> Option<StoredReservations> {
        self.0.lock().unwrap().get(&volume).cloned()
    }

    fn store(&self, volume: [u8; 16], reservations: Option<&StoredReservations>) -> Result<(), String> {
        if volume == [9; 16] {
            return Err("the disk is full".into());
        }
        let mut all = self.0.lock().unwrap();
        match reservations {
            Some(reservations) => drop(all.insert(volume, reservations.clone())),
            None => drop(all.remove(&volume)),
        }
        Ok(())
    }
}

/// Counts the notices of a host.
struct Host(Mutex<Vec<ReservationNotice>>);

impl ReservationObserver for Host {
    fn registrant(&self) -> &'static str {
        "b"
    }

    fn notice(&self, notice: ReservationNotice) {
        self.0.lock().unwrap().push(notice);
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        let polled = future.as_mut().poll(&mut std::task::Context::from_waker(&waker));
        if let std::task::Poll::Ready(value) = polled {
            return value;
        }
        std::thread::park();
    }
}

#[test]
fn persistent_reservations_survive_a_restart() {
    let store = Arc::new(Stored::default());
    let start = || ReservationRegistry::new(Some(store.clone() as Arc<dyn ReservationStore>));
    let (registry, id) = (start(), [1; 16]);
    let volume = registry.of_volume(id);
    let host = Arc::new(Host(Mutex::default()));
    let observer: Arc<dyn ReservationObserver> = host.clone();
    volume.observe(&observer);
    let change = |registry: &ReservationRegistry, host: &str, change| {
        block_on(registry.change(&registry.of_volume(id), host, change))
    };
    change(&registry, "a", register(1)).unwrap();
    assert_eq!(store.load(id), None);
    let persist = |new| ReservationChange::Register { current: None, new, persist: Some(true) };
    change(&registry, "b", persist(2)).unwrap();
    let kind = ReservationType::ExclusiveAccess;
    change(&registry, "a", ReservationChange::Reserve { key: 1, kind }).unwrap();
    assert!(!volume.admits("b", AccessKind::Read) && volume.admits("a", AccessKind::Write));
    let registry = start();
    let again = registry.of_volume(id);
    assert_eq!(again.table(), volume.table());
    assert!(!again.admits("b", AccessKind::Read));
    again.observe(&observer);
    change(&registry, "a", ReservationChange::Clear { key: 1 }).unwrap();
    assert_eq!(*host.0.lock().unwrap(), [ReservationNotice::ReservationPreempted]);
    assert!(again.admits("b", AccessKind::Write));
    assert_eq!(store.load(id), None);
    // A change that cannot be stored does not take place.
    let full = registry.of_volume([9; 16]);
    let failed = block_on(registry.change(&full, "a", persist(1)));
    assert_eq!((failed, full.table().registrants.len()), (Err(ReservationFailure::NotStored), 0));
}
