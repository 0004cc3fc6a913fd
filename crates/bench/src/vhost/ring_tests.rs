//! The driver's side of a queue, against a device that is played by hand.

use super::*;

fn ring(event_index: bool) -> (Arc<Shared>, RingLayout, Ring) {
    let memory = Shared::new(64 << 10).unwrap();
    let (place, end) = RingLayout::from(0, 8);
    assert!(end <= memory.len());
    let ring = Ring::new(memory.clone(), place, event_index);
    (memory, place, ring)
}

/// Hands `head` back, as a device does.
fn hand_back(memory: &Shared, place: &RingLayout, used: &mut u16, head: u16) {
    let at = place.used + HEAD + usize::from(*used % place.entries) * USED;
    memory.write(at, u64::from(head).to_le_bytes());
    *used = used.wrapping_add(1);
    memory.store_16(place.used + INDEX, *used);
}

#[test]
fn chains_go_and_come_back_in_any_order() {
    let (memory, place, mut ring) = ring(true);
    let mut used = 0;
    for round in 0..100_000u32 {
        ring.add(3);
        ring.add(6);
        assert_eq!(
            memory.load_16(place.available + INDEX),
            (round * 2) as u16,
            "not seen before it is shown"
        );
        ring.publish();
        assert_eq!(memory.load_16(place.available + INDEX), (round * 2 + 2) as u16);
        let entry = |back: u16| {
            let at = usize::from(((round * 2 + 2) as u16).wrapping_sub(back) % 8) * 2;
            memory.load_16(place.available + HEAD + at)
        };
        assert_eq!([entry(2), entry(1)], [3, 6]);
        for head in [6, 3] {
            // What the device looks at when it decides whether to interrupt.
            let event = memory.load_16(place.available + HEAD + 16);
            hand_back(&memory, &place, &mut used, head);
            assert!(
                used.wrapping_sub(event).wrapping_sub(1) >= 1,
                "no interrupt is wanted, ever: {used} {event}"
            );
            assert_eq!(ring.ended(), 1);
            assert_eq!(ring.take(), head);
            assert_eq!(ring.ended(), 0);
        }
    }
}

#[test]
fn an_interrupt_is_asked_for_unless_something_has_ended() {
    for event_index in [true, false] {
        let (memory, place, mut ring) = ring(event_index);
        let mut used = 0;
        // As a device decides after it has handed a chain back.
        let wanted = |before: u16, used: u16| match event_index {
            true => {
                let event = memory.load_16(place.available + HEAD + 16);
                used.wrapping_sub(event).wrapping_sub(1) < used.wrapping_sub(before)
            }
            false => memory.load_16(place.available) & NONE_WANTED == 0,
        };
        for _ in 0..100_000 {
            ring.add(0);
            ring.publish();
            hand_back(&memory, &place, &mut used, 0);
            assert!(!wanted(used.wrapping_sub(1), used), "nobody has asked");
            assert!(ring.want_interrupt(), "it has ended before");
            ring.take();
            ring.add(3);
            ring.publish();
            assert!(!ring.want_interrupt());
            hand_back(&memory, &place, &mut used, 3);
            assert!(wanted(used.wrapping_sub(1), used));
            ring.want_no_interrupts();
            ring.take();
        }
    }
}

#[test]
fn the_device_is_told_when_it_asks_for_it() {
    for event_index in [true, false] {
        let (memory, place, mut ring) = ring(event_index);
        let wake_at = |index: u16, flag: u16| {
            memory.store_16(place.used, flag);
            memory.store_16(place.used + HEAD + 8 * USED, index);
        };
        wake_at(0, 0);
        assert!(!ring.publish(), "nothing was added");
        ring.add(0);
        assert!(ring.publish());
        wake_at(0, 1);
        ring.add(1);
        assert!(!ring.publish(), "it is awake");
        wake_at(3, 0);
        ring.add(2);
        ring.add(3);
        assert!(ring.publish(), "it waits for one of the two");
    }
}

#[test]
fn descriptors_are_laid_out_as_specified() {
    let descriptor =
        Descriptor { address: 0x0102_0304_0506_0708, len: 0x1112_1314, flags: 0x2122, next: 0x3132 };
    let bytes = [8, 7, 6, 5, 4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11, 0x22, 0x21, 0x32, 0x31];
    assert_eq!(descriptor.bytes(), bytes);
}
