//! Tables of checkpoints: there and back, and what no writer stores is refused.

use proptest::prelude::*;

use super::*;
use crate::{Address, SegmentId};

fn segment(number: u64, width: u8) -> SegmentRecord {
    let scheme = Scheme::new(width - 1, 1).unwrap();
    let columns = (0..u16::from(width))
        .map(|column| match (number + u64::from(column)) % 7 {
            0 => SegmentColumn::hole(),
            1 => SegmentColumn {
                zone: Some((DriveIndex::new(column), ZoneIndex::new(4))),
                missing_from: Row::new(9),
            },
            _ => SegmentColumn::whole(DriveIndex::new(column), ZoneIndex::new(number as u32)),
        })
        .collect();
    SegmentRecord {
        incarnation: Incarnation::new(number + 1),
        scheme,
        class: [SegmentClass::Hot, SegmentClass::Mirror, SegmentClass::Cold, SegmentClass::Map]
            [(number % 4) as usize],
        state: if number.is_multiple_of(2) { SegmentState::Open } else { SegmentState::Sealed },
        rows: number as u32 % 100,
        columns,
    }
}

#[test]
fn segment_tables_round_trip_at_every_width() {
    for width in 2..=32u8 {
        let count = segments_per_block(width);
        let segments: Vec<_> =
            (0..count as u64).map(|number| (number % 3 != 0).then(|| segment(number, width))).collect();
        let block = encode_segments(&segments, width);
        assert_eq!(block.len(), BLOCK);
        assert_eq!(decode_segments(&block, width), Ok(segments));
    }
}

#[test]
fn live_counts_round_trip() {
    let counts: Vec<u32> = (0..1024).map(|count| count * 77).collect();
    assert_eq!(decode_live(&encode_live(&counts)), Ok(counts));
}

#[test]
fn a_root_round_trips_and_refuses_odd_sizes() {
    let entry = MapEntry::block(Address::new(SegmentId::new(4), Column::new(1), Row::new(2)), 9);
    let root = CheckpointRoot {
        shard: ShardIndex::new(2),
        sequence: Sequence::new(99),
        segment_slots: 700,
        tables: TableCounts { segments: 300, live: 1, layers: 4 },
        indexes: vec![entry, entry],
    };
    let block = root.encode();
    assert_eq!(CheckpointRoot::decode(&block), Ok(root));
    let mut odd = block;
    odd[10] = 9;
    assert_eq!(CheckpointRoot::decode(&odd), Err(FormatError::Invalid("table sizes")));
}

proptest! {
    #[test]
    fn entries_mean_what_was_stored(segment in 1u32.., column: u8, row in 0u32..1 << 24, crc: u32) {
        let address = Address::new(SegmentId::new(segment), Column::new(column), Row::new(row));
        prop_assert_eq!((address.segment().get(), address.column().get(), address.row().get()), (segment, column, row));
        let entry = MapEntry::block(address, crc);
        prop_assert_eq!(MapEntry::from_bytes(entry.to_bytes()), Some(entry));
        prop_assert_eq!(entry.slot(), crate::Slot::Block { address, crc });
    }

    #[test]
    fn no_block_panics_a_decoder(bytes in prop::collection::vec(any::<u8>(), 0..=BLOCK), width in 1u8..=32) {
        let _ = decode_segments(&bytes, width);
        let _ = decode_live(&bytes);
        let _ = decode_entries(&bytes);
        let _ = CheckpointRoot::decode(&bytes);
        let _ = crate::VolumeRecord::decode(&bytes);
    }
}

#[test]
fn entries_that_no_writer_stores_are_refused() {
    let mut bytes = MapEntry::ZERO.to_bytes();
    bytes[1] = 1;
    assert_eq!(MapEntry::from_bytes(bytes), None);
    let mut bytes = MapEntry::ABSENT.to_bytes();
    bytes[15] = 1;
    assert_eq!(MapEntry::from_bytes(bytes), None);
}
