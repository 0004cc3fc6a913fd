//! Addresses and entries: what they mean, and how they are shown.

use super::*;

fn address() -> Address {
    Address::new(SegmentId::new(7), Column::new(3), Row::new(100))
}

#[test]
fn blocks_below_are_in_the_same_column() {
    let below = address().plus_rows(1000);
    assert_eq!(
        (below.segment(), below.column(), below.row()),
        (SegmentId::new(7), Column::new(3), Row::new(1100))
    );
    assert_eq!(address().plus_rows(0), address());
}

#[test]
fn entries_say_absent_zero_or_where() {
    let block = MapEntry::block(address(), 9);
    for (entry, slot, absent) in [
        (MapEntry::ABSENT, Mapping::Absent, true),
        (MapEntry::ZERO, Mapping::Zero, false),
        (block, Mapping::Block { address: address(), crc: 9 }, false),
    ] {
        assert_eq!((entry.mapping(), entry.is_absent()), (slot, absent));
        assert_eq!(entry.address().is_some(), entry == block);
        assert_eq!(MapEntry::from_bytes(entry.to_bytes()), Some(entry));
    }
}

#[test]
fn numbers_that_mean_nothing_are_refused() {
    let with = |at: usize, value: u8| {
        let mut bytes = MapEntry::ZERO.to_bytes();
        bytes[at] = value;
        MapEntry::from_bytes(bytes).is_some()
    };
    // Bits of the address: 0 and 1 mean something, and what has a segment.
    assert!(with(0, 0) && with(0, 1) && !with(0, 2));
    assert!(!with(3, 1) && with(4, 1) && with(7, 1));
    // The CRC is any, the rest zero.
    assert!(with(8, 1) && with(11, 1) && !with(12, 1) && !with(15, 1));
}

#[test]
#[should_panic(expected = "no such place")]
fn segment_0_has_no_addresses() {
    Address::new(SegmentId::new(0), Column::new(0), Row::new(0));
}

#[test]
#[should_panic(expected = "no such place")]
fn rows_fit_their_bits() {
    Address::new(SegmentId::new(1), Column::new(0), Row::new(1 << 24));
}

#[test]
fn places_are_shown_in_words() {
    let shown = "segment 7 column 3 row 100";
    assert_eq!((format!("{}", address()), format!("{:?}", address())), (shown.into(), shown.into()));
    assert_eq!(format!("{:?}", MapEntry::ZERO), "Zero");
    assert_eq!(
        format!("{:?}", MapEntry::block(address(), 9)),
        format!("Block {{ address: {shown}, crc: 9 }}")
    );
}
