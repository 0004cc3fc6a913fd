//! Indexes that wrap, interrupts, and guests with too many available requests.

use std::os::fd::AsFd;

use super::super::memory::RegionLayout;
use super::super::testing::{Driver, GUEST, Guest, USER};
use super::*;

const LEN: u64 = 64 * 4096;

fn addresses(driver: &Driver) -> RingAddresses {
    let user = |guest| guest - GUEST + USER;
    RingAddresses {
        descriptors: user(driver.table()),
        available: user(driver.available()),
        used: user(driver.used()),
        log: None,
    }
}

fn memory(guest: &Guest) -> GuestMemory {
    let layout = RegionLayout { guest: GUEST, user: USER, len: LEN, offset: 0 };
    GuestMemory::empty().with(layout, guest.file.as_fd()).unwrap()
}

fn setup(size: u16, event_index: bool) -> (Driver, Ring) {
    let guest = Guest::new(LEN);
    let driver = Driver::new(&guest, GUEST, size);
    let ring = Ring::new(&addresses(&driver), size, 0, event_index, &memory(&guest)).unwrap();
    (driver, ring)
}

#[test]
fn indexes_wrap_around() {
    let (mut driver, mut ring) = setup(4, true);
    // More rounds than 16-bit indexes have values.
    for round in 0..70_000u32 {
        let head = (round % 4) as u16;
        driver.add(head);
        assert_eq!(ring.pop(), Ok(Some(head)));
        assert_eq!(ring.pop(), Ok(None));
        ring.push(head, round);
        ring.publish();
        assert_eq!(driver.ended(), [(head, round)]);
    }
}

#[test]
fn completions_are_invisible_until_published() {
    let (mut driver, mut ring) = setup(8, true);
    (0..3).for_each(|head| driver.add(head));
    while let Ok(Some(head)) = ring.pop() {
        ring.push(head, 1);
    }
    assert!(ring.has_unpublished());
    assert!(driver.ended().is_empty());
    ring.publish();
    assert!(!ring.has_unpublished());
    assert_eq!(driver.ended(), [(0, 1), (1, 1), (2, 1)]);
    assert_eq!(ring.used_index(), 3);
}

#[test]
fn an_overrun_breaks_the_queue() {
    let (driver, mut ring) = setup(8, true);
    driver.guest.write_16(driver.available() + 2, 9);
    assert_eq!(ring.pop(), Err(RingError::Overrun));
    assert_eq!(ring.arm(), Err(RingError::Overrun));
    driver.guest.write_16(driver.available() + 2, u16::MAX);
    assert_eq!(ring.pop(), Err(RingError::Overrun));
    let (mut driver, mut ring) = setup(8, true);
    driver.add(8);
    assert_eq!(ring.pop(), Err(RingError::Head));
}

#[test]
fn invalid_queues_are_refused() {
    let guest = Guest::new(LEN);
    let (driver, memory) = (Driver::new(&guest, GUEST, 8), memory(&guest));
    let good = addresses(&driver);
    let ring = |addresses: RingAddresses, size| Ring::new(&addresses, size, 0, true, &memory).err();
    assert_eq!(ring(good, 8), None);
    for size in [0, 3, 100, 2048, 32768, 65535] {
        assert_eq!(ring(good, size), Some(RingError::Size(size)));
    }
    let late = RingAddresses { descriptors: USER + LEN - 1024 * 16 + 16, ..good };
    assert_eq!(ring(late, 1024), Some(RingError::Location), "longer than the memory");
    for bad in [
        RingAddresses { descriptors: good.descriptors + 8, ..good },
        RingAddresses { descriptors: USER - 16, ..good },
        RingAddresses { available: good.available + 1, ..good },
        RingAddresses { available: USER + LEN - 4, ..good },
        RingAddresses { used: good.used + 2, ..good },
        RingAddresses { used: u64::MAX - 3, ..good },
    ] {
        assert_eq!(ring(bad, 8), Some(RingError::Location), "{bad:x?}");
    }
}

#[test]
fn interrupts_follow_the_event_index() {
    let (mut driver, mut ring) = setup(8, true);
    let mut end = |driver: &mut Driver, count: u16| {
        for _ in 0..count {
            driver.add(0);
            assert_eq!(ring.pop(), Ok(Some(0)));
            ring.push(0, 1);
        }
        ring.publish()
    };
    driver.want_interrupt(0);
    assert!(end(&mut driver, 1), "index 0 was passed");
    assert!(!end(&mut driver, 3), "index 0 was passed earlier");
    driver.want_interrupt(5);
    assert!(!end(&mut driver, 1), "index 5 is not passed yet");
    assert!(end(&mut driver, 3), "index 5 was passed");
    driver.want_interrupt(7);
    assert!(!end(&mut driver, 1));
}

#[test]
fn without_event_indexes_flags_are_used() {
    let (mut driver, mut ring) = setup(8, false);
    ring.disarm();
    assert_eq!(driver.guest.read_16(driver.used()), 1);
    assert_eq!(ring.arm(), Ok(true));
    assert_eq!(driver.guest.read_16(driver.used()), 0);
    driver.add(2);
    assert_eq!(ring.pop(), Ok(Some(2)));
    ring.push(2, 1);
    assert!(ring.publish());
    driver.guest.write_16(driver.available(), 1);
    driver.add(2);
    assert_eq!(ring.pop(), Ok(Some(2)));
    ring.push(2, 1);
    assert!(!ring.publish());
}

#[test]
fn arming_detects_earlier_requests() {
    let (mut driver, mut ring) = setup(8, true);
    assert_eq!(ring.arm(), Ok(true));
    assert_eq!(driver.wanted_kick(), 0);
    driver.add(0);
    assert_eq!(ring.arm(), Ok(false));
    assert_eq!(ring.pop(), Ok(Some(0)));
    assert_eq!(ring.arm(), Ok(true));
    assert_eq!(driver.wanted_kick(), 1);
}

#[test]
fn a_queue_continues_in_remapped_memory() {
    let guest = Guest::new(LEN);
    let mut driver = Driver::new(&guest, GUEST, 8);
    let mut ring = Ring::new(&addresses(&driver), 8, 0, true, &memory(&guest)).unwrap();
    (0..4).for_each(|head| driver.add(head));
    assert_eq!(ring.pop(), Ok(Some(0)));
    ring.push(0, 1);
    let mut moved = ring.remapped(&addresses(&driver), &memory(&guest)).unwrap();
    assert!(moved.has_unpublished());
    assert_eq!(moved.pop(), Ok(Some(1)));
    moved.push(1, 2);
    moved.publish();
    assert_eq!(driver.ended(), [(0, 1), (1, 2)]);
    assert!(ring.remapped(&addresses(&driver), &GuestMemory::empty()).is_err());
}

#[test]
fn need_event_matches_the_specification() {
    // In single steps from `before` to `now`: was `event` among the passed indexes?
    for before in [0u16, 5, 65530] {
        for count in 0..12u16 {
            for event in (0..20u16).map(|ahead| before.wrapping_add(ahead).wrapping_sub(4)) {
                let passed = (0..count).any(|step| before.wrapping_add(step) == event);
                assert_eq!(needs_event(event, before.wrapping_add(count), before), passed);
            }
        }
    }
}
