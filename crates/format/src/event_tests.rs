//! Event blocks: round trips, full blocks, and refusal of invalid blocks.

use proptest::prelude::*;

use super::*;
use crate::testing::{assert_both, encoded};

fn event(kind: EventKind, drive: Option<u16>, text: &str) -> Event {
    Event { seconds: 1_700_000_000, kind, drive, amount: 7, text: text.into() }
}

#[test]
fn blocks_round_trip() {
    let events = EventKind::ALL.iter().map(|kind| event(*kind, Some(3), "vm01"));
    let block = EventBlock { first: 5, events: events.chain([event(EventKind::Closed, None, "")]).collect() };
    assert_eq!(EventBlock::decode(&block.encode()), Ok(block.clone()));
    assert_eq!(block.next(), 5 + block.events.len() as u64);
}

#[test]
fn a_block_filled_up_to_has_room_round_trips() {
    for length in [0, 1, EVENT_TEXT_MAX] {
        let mut block = EventBlock { first: 1, events: Vec::new() };
        while block.has_room(length) {
            block.events.push(event(EventKind::Full, None, &"x".repeat(length)));
        }
        assert!(block.events.len() >= 14, "{length}");
        assert_eq!(EventBlock::decode(&block.encode()), Ok(block));
    }
}

#[test]
fn invalid_blocks_are_refused() {
    let block = EventBlock { first: 1, events: vec![event(EventKind::Opened, None, "")] };
    let bytes = block.encode();
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        EventBlock::decode(&bytes)
    };
    assert_eq!(with(0, 0), Err(FormatError::BadMagic));
    assert_eq!(with(4, 9), Err(FormatError::Version { found: 9 }));
    assert_eq!(with(8, 0), Err(FormatError::Invalid("number of an event")));
    assert_eq!(with(32, 0), Err(FormatError::Invalid("event kind")));
}

/// Asserts that encoder and decoder agree on a block.
#[track_caller]
fn check(accepted: bool, block: &EventBlock) {
    assert_both(accepted, block, &block.write(), || block.encode(), EventBlock::decode);
}

#[test]
fn event_numbers_must_not_be_0_or_overflow() {
    let of = |first, count| {
        let events = std::iter::repeat_with(|| event(EventKind::Full, Some(0), "")).take(count).collect();
        EventBlock { first, events }
    };
    for (accepted, first, count) in [
        (true, 1, 0),
        (false, 0, 0),
        (false, 0, 1),
        (true, u64::MAX, 0),
        (false, u64::MAX, 1),
        (true, u64::MAX - 2, 2),
        (false, u64::MAX - 1, 2),
    ] {
        check(accepted, &of(first, count));
    }
}

#[test]
fn the_index_that_stands_for_no_drive_is_refused() {
    let of = |drive| EventBlock { first: 1, events: vec![event(EventKind::DriveLost, drive, "")] };
    check(true, &of(Some(u16::MAX - 1)));
    check(true, &of(None));
    // This index is stored for events without a drive.
    assert!(encoded(|| of(Some(u16::MAX)).encode()).is_none());
}

#[test]
fn texts_and_blocks_beyond_their_limits_are_refused() {
    let of = |length: usize| EventBlock {
        first: 1,
        events: vec![event(EventKind::Full, None, &"x".repeat(length))],
    };
    check(true, &of(EVENT_TEXT_MAX));
    assert!(encoded(|| of(EVENT_TEXT_MAX + 1).encode()).is_none());
    let mut bytes = of(EVENT_TEXT_MAX).encode();
    bytes[44..46].copy_from_slice(&(EVENT_TEXT_MAX as u16 + 1).to_le_bytes());
    assert_eq!(EventBlock::decode(&bytes), Err(FormatError::Invalid("text length")));

    // 24 bytes for the fixed part, 22 for each event: 14 events with the longest text leave 194
    // bytes, which one event with a text of 172 bytes fills.
    let mut full =
        EventBlock { first: 1, events: vec![event(EventKind::Full, None, &"x".repeat(EVENT_TEXT_MAX)); 14] };
    assert!(full.has_room(172) && !full.has_room(173));
    full.events.push(event(EventKind::Full, None, &"x".repeat(172)));
    assert!(!full.has_room(0));
    check(true, &full);
    full.events.push(event(EventKind::Full, None, ""));
    assert!(encoded(|| full.encode()).is_none());
    let mut bytes = full.events.pop().map(|_| full.encode()).unwrap();
    bytes[16] += 1;
    assert_eq!(EventBlock::decode(&bytes), Err(FormatError::Truncated));
}

proptest! {
    #[test]
    fn decoding_arbitrary_bytes_does_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = EventBlock::decode(&bytes);
        bytes.resize(BLOCK, 0);
        let _ = EventBlock::decode(&bytes);
        let front = EventBlock { first: 1, events: Vec::new() }.encode();
        bytes.splice(..18, front[..18].iter().copied());
        let _ = EventBlock::decode(&bytes);
    }
}
