//! Guests that put anything into their queues: it costs them their own requests, or the queue.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use vhost::VhostBackend;

use super::back_end::{BackEnd, Options, PATIENCE};
use super::front_end::*;
use super::testing::{Descriptor, GUEST, INDIRECT, NEXT, WRITE, header};

const SIZE: u16 = 16;

/// What a guest does to its queue.
#[derive(Clone, Debug)]
enum Deed {
    /// A descriptor in the table.
    Describe(u16, Descriptor),
    /// A descriptor elsewhere, where indirect tables point to.
    DescribeElsewhere(u64, Descriptor),
    /// A request's header.
    Head(u64, u32, u64),
    /// An entry of the available ring, whatever it is, and the index beyond it.
    Offer(u16),
    /// The index alone.
    Claim(u16),
    /// Anything into the rings.
    Scribble(u64, Vec<u8>),
}

/// Where headers and tables are, in the third megabyte.
const PLACES: u64 = GUEST + (2 << 20);

fn address() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..64u64).prop_map(|slot| PLACES + slot * 64),
        4 => (0..64u64).prop_map(|slot| PLACES + 8192 + slot * 4096),
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

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => (0..SIZE, descriptor()).prop_map(|(index, descriptor)| Deed::Describe(index, descriptor)),
        4 => (address(), descriptor()).prop_map(|(at, descriptor)| Deed::DescribeElsewhere(at, descriptor)),
        4 => (address(), 0..15u32, prop_oneof![Just(0), 0..200_000u64, any::<u64>()])
            .prop_map(|(at, kind, sector)| Deed::Head(at, kind, sector)),
        6 => (0..SIZE).prop_map(Deed::Offer),
        1 => any::<u16>().prop_map(Deed::Offer),
        1 => any::<u16>().prop_map(Deed::Claim),
        1 => (0..1024u64, proptest::collection::vec(any::<u8>(), 1..64))
            .prop_map(|(at, bytes)| Deed::Scribble(at, bytes)),
    ]
}

fn is_inside(address: u64, len: u64) -> bool {
    address >= GUEST && address.checked_add(len).is_some_and(|end| end <= GUEST + MEMORY)
}

fn commit(front: &mut FrontEnd, deed: &Deed) {
    let (guest, driver) = (front.guest.clone(), &mut front.queues[0].driver);
    match deed {
        Deed::Describe(index, descriptor) => driver.set(*index, *descriptor),
        Deed::DescribeElsewhere(at, descriptor) if is_inside(*at, 16) => {
            guest.write(*at, &descriptor.bytes())
        }
        Deed::Head(at, kind, sector) if is_inside(*at, 16) => guest.write(*at, &header(*kind, *sector)),
        Deed::DescribeElsewhere(..) | Deed::Head(..) => {}
        Deed::Offer(head) => {
            driver.add(*head);
            front.queues[0].kick.write(1).unwrap();
        }
        Deed::Claim(index) => guest.write_16(driver.available() + 2, *index),
        Deed::Scribble(at, bytes) => guest.write(driver.base + at, bytes),
    }
}

#[test]
fn whatever_a_guest_puts_into_a_queue_costs_that_queue_alone() {
    let back_end = BackEnd::start(&Options::default());
    let manner = Manner { queues: 2, size: SIZE, inflight: true, ..Manner::default() };
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let live = |deeds: Vec<Deed>| {
        let mut front = FrontEnd::new(&back_end.path(), &manner);
        for deed in &deeds {
            commit(&mut front, deed);
        }
        front.queues[0].kick.write(1).unwrap();
        // The queue beside it, on the same reactor and of the same guest.
        prop_assert_eq!(front.run_on(1, &Io::write(0, &[1; 512])).status, OK);
        // Stopping it waits for whatever it has begun.
        front.frontend.get_vring_base(0).unwrap();
        prop_assert_eq!(front.run_on(1, &Io::read(0, 512)).status, OK);
        Ok(())
    };
    runner.run(&proptest::collection::vec(deed(), 1..60), live).unwrap();
}

#[test]
fn a_guest_that_claims_more_than_there_is_loses_the_queue() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &Manner { queues: 2, ..Manner::default() });
    let driver = &front.queues[0].driver;
    driver.guest.write_16(driver.available() + 2, 65);
    front.queues[0].kick.write(1).unwrap();
    assert!(is_raised(&front.queues[0].err, PATIENCE), "the front end is told");
    assert_eq!(front.run_on(1, &Io::read(0, 512)).status, OK);
    // Set up anew it works again, which is how a guest's driver recovers.
    front.restart_queue(0);
    assert_eq!(front.run_on(0, &Io::read(0, 512)).status, OK);
}

#[test]
fn a_buffer_that_changes_meanwhile_harms_nobody() {
    let back_end = BackEnd::start(&Options::default());
    let mut front = FrontEnd::new(&back_end.path(), &Manner::default());
    let stop = AtomicBool::new(false);
    // Each request takes the slot that the one before has left.
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
