//! Guests with invalid queue contents: they lose only their own requests, or the queue.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use vhost::VhostBackend;

use super::back_end::{BackEnd, Options, TIMEOUT};
use super::front_end::*;
use super::testing::{Descriptor, GUEST, INDIRECT, NEXT, WRITE, header};

const SIZE: u16 = 16;

/// A change that a guest makes to its queue.
#[derive(Clone, Debug)]
enum Mutation {
    /// Writes a descriptor to the table.
    SetDescriptor(u16, Descriptor),
    /// Writes a descriptor elsewhere, as an entry of an indirect table.
    SetIndirect(u64, Descriptor),
    /// Writes a request's header.
    SetHeader(u64, u32, u64),
    /// Adds an entry to the available ring, valid or not.
    Offer(u16),
    /// Changes only the index of the available ring.
    SetIndex(u16),
    /// Writes arbitrary bytes to the table and rings.
    Overwrite(u64, Vec<u8>),
}

/// Guest address of headers and indirect tables, in the third MiB.
const REQUESTS: u64 = GUEST + (2 << 20);

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..64u64).prop_map(|slot| REQUESTS + slot * 64),
        4 => (0..64u64).prop_map(|slot| REQUESTS + 8192 + slot * 4096),
        1 => Just(GUEST + MEMORY - 8),
        1 => Just(GUEST),
        1 => Just(GUEST - 1),
        1 => any::<u64>(),
    ]
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    let len = prop_oneof![
        4 => Just(16u32),
        4 => Just(1u32),
        4 => (0..16u32).prop_map(|sectors| sectors * 512),
        2 => (0..20u32).prop_map(|entries| entries * 16),
        1 => any::<u32>(),
    ];
    let flags = prop_oneof![
        8 => (0..4u16).prop_map(|bits| bits & (NEXT | WRITE)),
        2 => Just(INDIRECT),
        1 => any::<u16>(),
    ];
    let next = prop_oneof![8 => 0..SIZE, 1 => any::<u16>()];
    (address(), len, flags, next).prop_map(|(address, len, flags, next)| Descriptor {
        address,
        len,
        flags,
        next,
    })
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        8 => (0..SIZE, descriptor()).prop_map(|(index, descriptor)| Mutation::SetDescriptor(index, descriptor)),
        4 => (address(), descriptor()).prop_map(|(at, descriptor)| Mutation::SetIndirect(at, descriptor)),
        4 => (address(), 0..15u32, prop_oneof![Just(0), 0..200_000u64, any::<u64>()])
            .prop_map(|(at, kind, sector)| Mutation::SetHeader(at, kind, sector)),
        6 => (0..SIZE).prop_map(Mutation::Offer),
        1 => any::<u16>().prop_map(Mutation::Offer),
        1 => any::<u16>().prop_map(Mutation::SetIndex),
        1 => (0..1024u64, proptest::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(at, bytes)| Mutation::Overwrite(at, bytes)),
    ]
}

fn is_inside(address: u64, len: u64) -> bool {
    address >= GUEST && address.checked_add(len).is_some_and(|end| end <= GUEST + MEMORY)
}

fn apply(front: &mut FrontEnd, mutation: &Mutation) {
    let (guest, driver) = (front.guest.clone(), &mut front.queues[0].driver);
    match mutation {
        Mutation::SetDescriptor(index, descriptor) => driver.set(*index, *descriptor),
        Mutation::SetIndirect(at, descriptor) if is_inside(*at, 16) => guest.write(*at, &descriptor.bytes()),
        Mutation::SetHeader(at, kind, sector) if is_inside(*at, 16) => {
            guest.write(*at, &header(*kind, *sector))
        }
        Mutation::SetIndirect(..) | Mutation::SetHeader(..) => {}
        Mutation::Offer(head) => {
            driver.add(*head);
            front.queues[0].kick.write(1).unwrap();
        }
        Mutation::SetIndex(index) => guest.write_16(driver.available() + 2, *index),
        Mutation::Overwrite(at, bytes) => guest.write(driver.base + at, bytes),
    }
}

#[test]
fn arbitrary_queue_contents_affect_only_that_queue() {
    let back_end = BackEnd::start(&Options::default());
    let setup = DeviceSetup { queues: 2, size: SIZE, inflight: true, ..DeviceSetup::default() };
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let run = |mutations: Vec<Mutation>| {
        let mut front = FrontEnd::new(&back_end.path(), &setup);
        for mutation in &mutations {
            apply(&mut front, mutation);
        }
        front.queues[0].kick.write(1).unwrap();
        // The guest's other queue, on the same reactor.
        prop_assert_eq!(front.run_on(1, &Io::write(0, &[1; 512])).status, OK);
        // The stop waits for the requests in flight.
        front.frontend.get_vring_base(0).unwrap();
        prop_assert_eq!(front.run_on(1, &Io::read(0, 512)).status, OK);
        Ok(())
    };
    runner.run(&proptest::collection::vec(mutation(), 1..60), run).unwrap();
}

#[test]
fn an_available_index_beyond_the_ring_stops_the_queue() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup { queues: 2, ..DeviceSetup::default() });
    let driver = &front.queues[0].driver;
    driver.guest.write_16(driver.available() + 2, 65);
    front.queues[0].kick.write(1).unwrap();
    assert!(is_raised(&front.queues[0].err, TIMEOUT), "no error event");
    assert_eq!(front.run_on(1, &Io::read(0, 512)).status, OK);
    // The queue works again after a restart, with which a guest's driver recovers.
    front.restart_queue(0);
    assert_eq!(front.run_on(0, &Io::read(0, 512)).status, OK);
}

#[test]
fn buffers_may_change_during_their_request() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &DeviceSetup::default());
    let stop = AtomicBool::new(false);
    // Each request uses the slot of the request before.
    let (file, at) = (front.guest.file.try_clone().unwrap(), front.queues[0].data_of(0) - GUEST);
    let statuses: Vec<u8> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut byte = 0u8;
            while !stop.load(Ordering::Relaxed) {
                file.write_all_at(&[byte; 4096], at).unwrap();
                byte = byte.wrapping_add(1);
            }
        });
        let requests = (0..200u64).flat_map(|at| [Io::write(at * 8, &[0; 4096]), Io::read(at * 8, 4096)]);
        let statuses = requests.map(|io| front.run_on(0, &io).status).collect();
        stop.store(true, Ordering::Relaxed);
        statuses
    });
    assert_eq!(statuses, [OK; 400]);
    front.write(0, &[7; 512]);
    assert_eq!(front.read(0, 512), [7; 512]);
    assert!(!is_raised(&front.queues[0].err, Duration::ZERO));
}
