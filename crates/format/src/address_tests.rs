//! Addresses and map entries: encoding and display.

use super::*;

fn address() -> Address {
    Address::new(SegmentId::new(7), Column::new(3), Row::new(100))
}

#[test]
fn plus_rows_stays_in_the_same_column() {
    let below = address().plus_rows(1000);
    assert_eq!(
        (below.segment(), below.column(), below.row()),
        (SegmentId::new(7), Column::new(3), Row::new(1100))
    );
    assert_eq!(address().plus_rows(0), address());
}

#[test]
fn entries_are_absent_zero_or_a_block() {
    let block = MapEntry::block(address(), 9);
    for (entry, mapping, absent) in [
        (MapEntry::ABSENT, Mapping::Absent, true),
        (MapEntry::ZERO, Mapping::Zero, false),
        (block, Mapping::Block { address: address(), crc: 9 }, false),
    ] {
        assert_eq!((entry.mapping(), entry.is_absent()), (mapping, absent));
        assert_eq!(entry.address().is_some(), entry == block);
        assert_eq!(MapEntry::from_bytes(entry.to_bytes()), Some(entry));
    }
}

#[test]
fn invalid_entries_are_refused() {
    let with = |at: usize, value: u8| {
        let mut bytes = MapEntry::ZERO.to_bytes();
        bytes[at] = value;
        MapEntry::from_bytes(bytes).is_some()
    };
    // As addresses, 0 and 1 are valid, and any number with a segment.
    assert!(with(0, 0) && with(0, 1) && !with(0, 2));
    assert!(!with(3, 1) && with(4, 1) && with(7, 1));
    // Any CRC is valid; the reserved bytes must be zero.
    assert!(with(8, 1) && with(11, 1) && !with(12, 1) && !with(15, 1));
}

#[test]
#[should_panic(expected = "invalid address")]
fn an_address_in_segment_0_panics() {
    Address::new(SegmentId::new(0), Column::new(0), Row::new(0));
}

#[test]
#[should_panic(expected = "invalid address")]
fn a_row_beyond_24_bits_panics() {
    Address::new(SegmentId::new(1), Column::new(0), Row::new(1 << 24));
}

#[test]
fn addresses_are_displayed_as_text() {
    let shown = "segment 7 column 3 row 100";
    assert_eq!((format!("{}", address()), format!("{:?}", address())), (shown.into(), shown.into()));
    assert_eq!(format!("{:?}", MapEntry::ZERO), "Zero");
    assert_eq!(
        format!("{:?}", MapEntry::block(address(), 9)),
        format!("Block {{ address: {shown}, crc: 9 }}")
    );
}
