//! Blocks of events: there and back, full ones too, and what no writer stores is refused.

use proptest::prelude::*;

use super::*;

fn event(kind: EventKind, drive: Option<u16>, text: &str) -> Event {
    Event { seconds: 1_700_000_000, kind, drive, amount: 7, text: text.into() }
}

#[test]
fn what_is_encoded_is_decoded() {
    let events = EventKind::ALL.iter().map(|kind| event(*kind, Some(3), "vm01"));
    let block = EventBlock { first: 5, events: events.chain([event(EventKind::Closed, None, "")]).collect() };
    assert_eq!(EventBlock::decode(&block.encode()), Ok(block.clone()));
    assert_eq!(block.next(), 5 + block.events.len() as u64);
}

#[test]
fn a_block_takes_what_has_room_in_it() {
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
fn what_no_writer_stores_is_refused() {
    let block = EventBlock { first: 1, events: vec![event(EventKind::Opened, None, "")] };
    let bytes = block.encode();
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        EventBlock::decode(&bytes)
    };
    assert_eq!(with(0, 0), Err(FormatError::NotOurs));
    assert_eq!(with(4, 9), Err(FormatError::Version { found: 9 }));
    assert_eq!(with(8, 0), Err(FormatError::Invalid("number of an event")));
    assert_eq!(with(32, 0), Err(FormatError::Invalid("event kind")));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = EventBlock::decode(&bytes);
        let front = EventBlock { first: 1, events: Vec::new() }.encode();
        bytes.splice(..bytes.len().min(18), front[..18].iter().copied());
        let _ = EventBlock::decode(&bytes);
    }
}
