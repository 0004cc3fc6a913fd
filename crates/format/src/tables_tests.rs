//! Checkpoint tables: round trips, and refusal of invalid records.

use proptest::prelude::*;

use super::*;
use crate::limits::ROOT_POINTERS_MAX;
use crate::testing::{assert_both, encoded};
use crate::{Address, SegmentId};

fn segment(number: u64, width: u8) -> SegmentRecord {
    let scheme = Scheme::new(width - 1, 1).unwrap();
    let columns = (0..u16::from(width))
        .map(|column| match (number + u64::from(column)) % 7 {
            0 => SegmentColumn::hole(),
            1 => SegmentColumn {
                zone: Some((DriveIndex::new(column), ZoneIndex::new(4))),
                missing_from: Row::new(9),
                damaged: false,
            },
            2 => SegmentColumn {
                damaged: true,
                ..SegmentColumn::whole(DriveIndex::new(column), ZoneIndex::new(5))
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
fn a_root_round_trips_and_refuses_wrong_sizes() {
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
    let mut wrong = block;
    wrong[10] = 9;
    assert_eq!(CheckpointRoot::decode(&wrong), Err(FormatError::Invalid("table sizes")));
}

/// Asserts that encoder and decoder agree on a record in a table of this width.
#[track_caller]
fn check_segment(accepted: bool, segment: &SegmentRecord, table_width: u8) {
    let mut written = Vec::new();
    put_segment(&mut Writer::new(&mut written), segment, table_width);
    let encode = || {
        let mut bytes = Vec::new();
        write_segment(&mut Writer::new(&mut bytes), segment, table_width);
        bytes
    };
    let decode = |bytes: &[u8]| read_segment(&mut Reader::new(bytes), table_width);
    let decode = |bytes: &[u8]| decode(bytes)?.ok_or(FormatError::Invalid("unused slot"));
    assert_both(accepted, segment, &written, encode, decode);
}

#[test]
fn segments_beyond_their_limits_are_refused() {
    let plain = || segment(1, 5);
    check_segment(true, &SegmentRecord { rows: ROWS_MAX, ..plain() }, 5);
    check_segment(false, &SegmentRecord { rows: ROWS_MAX + 1, ..plain() }, 5);
    check_segment(true, &SegmentRecord { incarnation: Incarnation::new(u64::MAX), ..plain() }, 5);
    check_segment(false, &SegmentRecord { incarnation: Incarnation::new(0), ..plain() }, 5);
    check_segment(true, &segment(1, COLUMNS_MAX as u8), COLUMNS_MAX as u8);
    check_segment(true, &plain(), COLUMNS_MAX as u8);
    let mut narrow = segment(1, 5);
    narrow.columns.pop();
    assert!(encoded(|| encode_segments(&[Some(narrow)], 5)).is_none());
    assert!(encoded(|| encode_segments(&[Some(plain())], 4)).is_none());
}

#[test]
fn columns_beyond_their_limits_are_refused() {
    let with = |column| {
        let mut segment = segment(1, 5);
        segment.columns[3] = column;
        segment
    };
    let on = |drive| SegmentColumn::whole(DriveIndex::new(drive), ZoneIndex::new(u32::MAX));
    let last = DRIVES_MAX as u16 - 1;
    check_segment(true, &with(on(last)), 5);
    check_segment(false, &with(on(last + 1)), 5);
    let missing = |row| SegmentColumn { missing_from: Row::new(row), ..on(0) };
    check_segment(true, &with(missing(0)), 5);
    check_segment(true, &with(missing(ROWS_MAX)), 5);
    check_segment(false, &with(missing(ROWS_MAX + 1)), 5);
    check_segment(true, &with(SegmentColumn::hole()), 5);
    // The index that stands for no drive: it would be decoded as a hole.
    let segments = [Some(with(on(NO_DRIVE)))];
    assert!(encoded(|| encode_segments(&segments, 5)).is_none());
}

#[test]
fn an_unknown_state_of_a_column_is_refused() {
    let mut block = encode_segments(&[Some(segment(1, 5))], 5);
    let state = SEGMENT_FIXED + COLUMN_BYTES + 2;
    assert_eq!(block[state], 1, "column 1 of this segment is damaged");
    block[state] = 2;
    assert_eq!(decode_segments(&block, 5), Err(FormatError::Invalid("state of a column")));
}

#[test]
fn encoding_too_many_segments_or_counts_panics() {
    let most = vec![Some(segment(1, 5)); segments_per_block(5)];
    assert!(encoded(|| encode_segments(&most, 5)).is_some());
    assert!(encoded(|| encode_segments(&[most, vec![None]].concat(), 5)).is_none());
    assert!(encoded(|| encode_live(&vec![7; LIVE_PER_BLOCK + 1])).is_none());
    let half = vec![u32::MAX; LIVE_PER_BLOCK / 2];
    let expected = [half.as_slice(), &[0; LIVE_PER_BLOCK / 2]].concat();
    assert_eq!(decode_live(&encode_live(&half)), Ok(expected));
}

#[test]
fn blocks_of_another_size_are_refused() {
    let entries = |bytes: &[u8]| decode_entries(bytes).map(|_| ());
    let segments = |bytes: &[u8]| decode_segments(bytes, 5).map(|_| ());
    let live = |bytes: &[u8]| decode_live(bytes).map(|_| ());
    let layers = |bytes: &[u8]| crate::decode_layers(bytes).map(|_| ());
    let all = |bytes: &[u8]| [entries(bytes), segments(bytes), live(bytes), layers(bytes)];
    for (length, expected) in [
        (BLOCK, Ok(())),
        (BLOCK - 1, Err(FormatError::Truncated)),
        (BLOCK + 1, Err(FormatError::Invalid("block size"))),
    ] {
        assert_eq!(all(&vec![0; length]), [expected; 4], "{length}");
    }
    for (fits, length) in [(true, BLOCK), (false, BLOCK - 16), (false, BLOCK + 16)] {
        let encode = || encode_entries(&[MapEntry::ZERO; NODE_ENTRIES], &mut vec![0; length]);
        assert_eq!(encoded(encode).is_some(), fits, "{length}");
    }
}

/// Returns a root with pointers to all index blocks that these tables need.
fn root(shard: u16, tables: TableCounts) -> CheckpointRoot {
    let entry = MapEntry::block(Address::new(SegmentId::new(4), Column::new(1), Row::new(2)), 9);
    let indexes = vec![entry; tables.total().div_ceil(INDEX_ENTRIES).min(ROOT_POINTERS_MAX + 1)];
    CheckpointRoot {
        shard: ShardIndex::new(shard),
        sequence: Sequence::new(0),
        segment_slots: 7,
        tables,
        indexes,
    }
}

#[track_caller]
fn check_root(accepted: bool, root: &CheckpointRoot) {
    assert_both(accepted, root, &root.write(), || root.encode(), CheckpointRoot::decode);
}

#[test]
fn a_root_of_too_many_tables_is_refused() {
    let most = TABLE_BLOCKS_MAX as u32;
    let tables = |segments, live, layers| TableCounts { segments, live, layers };
    check_root(true, &root(0, TableCounts::default()));
    check_root(true, &root(0, tables(most - 2, 1, 1)));
    assert_eq!(root(0, tables(most, 0, 0)).indexes.len(), ROOT_POINTERS_MAX);
    for tables in [tables(most - 1, 1, 1), tables(1, most, 0), tables(u32::MAX, u32::MAX, u32::MAX)] {
        check_root(false, &root(0, tables));
    }
    check_root(true, &root(SHARDS_MAX as u16 - 1, tables(1, 1, 1)));
    check_root(false, &root(SHARDS_MAX as u16, tables(1, 1, 1)));
}

#[test]
fn a_root_without_a_pointer_for_each_index_block_is_refused() {
    let plain = root(0, TableCounts { segments: 300, live: 1, layers: 1 });
    check_root(true, &plain);
    let with = |change: fn(&mut Vec<MapEntry>)| {
        let mut root = plain.clone();
        change(&mut root.indexes);
        root
    };
    check_root(false, &with(|indexes| indexes.truncate(1)));
    check_root(false, &with(|indexes| indexes.push(indexes[0])));
    check_root(false, &with(|indexes| indexes[1] = MapEntry::ABSENT));
    check_root(false, &with(|indexes| indexes[1] = MapEntry::ZERO));
}

proptest! {
    #[test]
    fn map_entries_round_trip(segment in 1u32.., column: u8, row in 0u32..1 << 24, crc: u32) {
        let address = Address::new(SegmentId::new(segment), Column::new(column), Row::new(row));
        prop_assert_eq!((address.segment().get(), address.column().get(), address.row().get()), (segment, column, row));
        let entry = MapEntry::block(address, crc);
        prop_assert_eq!(MapEntry::from_bytes(entry.to_bytes()), Some(entry));
        prop_assert_eq!(entry.mapping(), crate::Mapping::Block { address, crc });
    }

    #[test]
    fn decoding_arbitrary_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..=BLOCK), width in 1u8..=32) {
        let _ = decode_segments(&bytes, width);
        let _ = decode_live(&bytes);
        let _ = decode_entries(&bytes);
        let _ = CheckpointRoot::decode(&bytes);
        let _ = crate::VolumeRecord::decode(&bytes);
    }
}

#[test]
fn invalid_map_entries_are_refused() {
    let mut bytes = MapEntry::ZERO.to_bytes();
    bytes[1] = 1;
    assert_eq!(MapEntry::from_bytes(bytes), None);
    let mut bytes = MapEntry::ABSENT.to_bytes();
    bytes[15] = 1;
    assert_eq!(MapEntry::from_bytes(bytes), None);
}

#[test]
fn columns_hold_the_rows_before_missing_from() {
    let zone = Some((DriveIndex::new(1), ZoneIndex::new(2)));
    let misses = SegmentColumn { zone, missing_from: Row::new(9), damaged: false };
    assert!(misses.holds(Row::new(8)) && !misses.holds(Row::new(9)));
    let whole = SegmentColumn::whole(DriveIndex::new(1), ZoneIndex::new(2));
    assert!(whole.holds(Row::new(ROWS_MAX - 1)) && !SegmentColumn::hole().holds(Row::new(0)));
    assert!(!SegmentColumn { zone: None, ..misses }.holds(Row::new(0)));
    let segment = segment(1, 5);
    assert_eq!(segment.column(Column::new(4)), segment.columns.get(4));
    assert_eq!(segment.column(Column::new(5)), None);
}

#[test]
fn expected_sizes_of_tables_and_recent_segments() {
    assert_eq!(TableCounts { segments: 3, live: 50, layers: 700 }.total(), 753);
    assert_eq!([2, 5, 32].map(segments_per_block), [102, 53, 10]);
    // Three quarters of 2 MiB, divided by 24 bytes and 12 for each column, up to 192.
    assert_eq!(recent_segments_max(1, 2), 192);
    assert_eq!(recent_segments_max(0, 2), 192);
    assert_eq!(recent_segments_max(20, 32), 192);
    assert_eq!(recent_segments_max(21, 32), 1_572_864 / 408 / 21);
    assert_eq!(recent_segments_max(64, 32), 60);
}
