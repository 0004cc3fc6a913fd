//! Tests of the driver side against a device simulated by hand.

use super::*;

fn ring(event_index: bool) -> (Arc<SharedMemory>, RingLayout, Ring) {
    let memory = SharedMemory::new(64 << 10).unwrap();
    let (place, end) = RingLayout::from(0, 8);
    assert!(end <= memory.len());
    let ring = Ring::new(memory.clone(), place, event_index);
    (memory, place, ring)
}

/// Completes `head`, as a device does.
fn complete(memory: &SharedMemory, place: &RingLayout, used: &mut u16, head: u16) {
    let at = place.used + RING_HEADER + usize::from(*used % place.entries) * USED;
    memory.write(at, u64::from(head).to_le_bytes());
    *used = used.wrapping_add(1);
    memory.store_16(place.used + INDEX, *used);
}

#[test]
fn chains_complete_in_any_order() {
    let (memory, place, mut ring) = ring(true);
    let mut used = 0;
    for round in 0..100_000u32 {
        ring.add(3);
        ring.add(6);
        assert_eq!(
            memory.load_16(place.available + INDEX),
            (round * 2) as u16,
            "not visible before it is published"
        );
        ring.publish();
        assert_eq!(memory.load_16(place.available + INDEX), (round * 2 + 2) as u16);
        let entry = |back: u16| {
            let at = usize::from(((round * 2 + 2) as u16).wrapping_sub(back) % 8) * 2;
            memory.load_16(place.available + RING_HEADER + at)
        };
        assert_eq!([entry(2), entry(1)], [3, 6]);
        for head in [6, 3] {
            // The value that the device checks before it interrupts.
            let event = memory.load_16(place.available + RING_HEADER + 16);
            complete(&memory, &place, &mut used, head);
            assert!(
                used.wrapping_sub(event).wrapping_sub(1) >= 1,
                "no interrupt is requested: {used} {event}"
            );
            assert_eq!(ring.ended(), 1);
            assert_eq!(ring.take(), head);
            assert_eq!(ring.ended(), 0);
        }
    }
}

#[test]
fn an_interrupt_is_requested_unless_a_chain_completed() {
    for event_index in [true, false] {
        let (memory, place, mut ring) = ring(event_index);
        let mut used = 0;
        // The check that a device makes after it completes a chain.
        let wanted = |before: u16, used: u16| match event_index {
            true => {
                let event = memory.load_16(place.available + RING_HEADER + 16);
                used.wrapping_sub(event).wrapping_sub(1) < used.wrapping_sub(before)
            }
            false => memory.load_16(place.available) & SUPPRESS == 0,
        };
        for _ in 0..100_000 {
            ring.add(0);
            ring.publish();
            complete(&memory, &place, &mut used, 0);
            assert!(!wanted(used.wrapping_sub(1), used), "no interrupt was requested");
            assert!(ring.want_interrupt(), "a chain completed before");
            ring.take();
            ring.add(3);
            ring.publish();
            assert!(!ring.want_interrupt());
            complete(&memory, &place, &mut used, 3);
            assert!(wanted(used.wrapping_sub(1), used));
            ring.want_no_interrupts();
            ring.take();
        }
    }
}

#[test]
fn the_device_is_notified_on_request() {
    for event_index in [true, false] {
        let (memory, place, mut ring) = ring(event_index);
        let wake_at = |index: u16, flag: u16| {
            memory.store_16(place.used, flag);
            memory.store_16(place.used + RING_HEADER + 8 * USED, index);
        };
        wake_at(0, 0);
        assert!(!ring.publish(), "nothing was added");
        ring.add(0);
        assert!(ring.publish());
        wake_at(0, 1);
        ring.add(1);
        assert!(!ring.publish(), "the device is awake");
        wake_at(3, 0);
        ring.add(2);
        ring.add(3);
        assert!(ring.publish(), "the device waits for one of the two");
    }
}

#[test]
fn descriptors_are_laid_out_as_specified() {
    let descriptor =
        Descriptor { address: 0x0102_0304_0506_0708, len: 0x1112_1314, flags: 0x2122, next: 0x3132 };
    let bytes = [8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0x22, 0x21, 0x32, 0x31];
    assert_eq!(descriptor.bytes(), bytes);
}
