//! Record headers: round trips, and detection of damage.

use proptest::prelude::*;

use super::*;
use crate::limits::{COLUMNS_MAX, LAYER_BLOCKS_MAX, ROWS_MAX, TABLE_BLOCKS_MAX};
use crate::testing::assert_both;
use crate::{Address, Column, LayerBlock, LayerId, UnmapMode};

pub(crate) const KEY: PoolKey = PoolKey(*b"0123456789abcdef");

pub(crate) fn location() -> RecordLocation {
    RecordLocation {
        pool: PoolId(*b"pool pool pool p"),
        shard: ShardIndex::new(3),
        segment: SegmentId::new(7),
        incarnation: Incarnation::new(11),
        row: Row::new(13),
        sequence: Sequence::new(17),
        durable: Sequence::new(16),
    }
}

/// Generates any valid item, including items at the end of a layer.
fn item() -> impl Strategy<Value = Item> {
    let layer = (1u32..u32::MAX).prop_map(LayerId::new);
    let from_end = prop_oneof![0u64..40, 0..LAYER_BLOCKS_MAX - 40];
    let row = 0u32..=ROWS_MAX - 20;
    let from = (1u32.., 0..COLUMNS_MAX as u8, row).prop_map(|(segment, column, row)| {
        Address::new(SegmentId::new(segment), Column::new(column), Row::new(row))
    });
    let mode = prop_oneof![Just(UnmapMode::Absent), Just(UnmapMode::Zero)];
    (0..7, layer, from_end, 1u16..20, from, mode, 0u8..5).prop_map(
        |(kind, layer, from_end, count, from, mode, level)| {
            let block = LayerBlock::new(LAYER_BLOCKS_MAX - from_end.max(u64::from(count)));
            match kind {
                0 => Item::Write { layer, block, count },
                1 => Item::Move { layer, block, count, from },
                2 => Item::Unmap { layer, block, count: u64::from(count), mode },
                3 => Item::Node { layer, level, index: block.get() >> (8 * (level + 1)) },
                4 => Item::Table { index: layer.get() % TABLE_BLOCKS_MAX as u32 },
                5 => {
                    let into = LayerId::new(layer.get() + 1);
                    Item::Merge { from: layer, into, block, count: u32::from(count) }
                }
                _ => Item::DropLayer { layer },
            }
        },
    )
}

/// Returns the header of a record with these items and this many CRCs, and its bytes, valid or not.
fn written(location: &RecordLocation, items: &[Item], payload: usize) -> (Header, Vec<u8>) {
    let crcs: Vec<u32> = (0..payload as u32).map(|index| index.wrapping_mul(0x9E37_79B9)).collect();
    let size = HeaderSize::of(items, crcs.len());
    let mut bytes = vec![0xFF; usize::from(size.blocks) * BLOCK];
    write_header(location, size, items, &crcs, &KEY, &mut bytes);
    (Header { location: *location, header_blocks: size.blocks, items: items.to_vec(), crcs }, bytes)
}

fn decode(bytes: &[u8]) -> Result<Header, FormatError> {
    UnverifiedHeader::parse(bytes)?.verify(bytes, &KEY)
}

/// Asserts that encoder and decoder agree on a record with these items and this many CRCs, and that
/// `accepted` is the result.
#[track_caller]
pub(crate) fn assert_record(accepted: bool, location: &RecordLocation, items: &[Item], payload: usize) {
    let (header, bytes) = written(location, items, payload);
    let encode = || {
        let mut out = vec![0xFF; bytes.len()];
        Header::encode(location, items, &header.crcs, &KEY, &mut out);
        out
    };
    assert_both(accepted, &header, &bytes, encode, decode);
}

/// Asserts that the check of the encoder and the decoder agree on a record.
pub(crate) fn assert_agree(location: &RecordLocation, items: &[Item], payload: usize) {
    let (header, bytes) = written(location, items, payload);
    match (check_header(location, items, payload), decode(&bytes)) {
        (Ok(_), Ok(decoded)) => assert_eq!(decoded, header),
        (Err(_), Err(_)) => {}
        (checked, decoded) => panic!("the encoder returns {checked:?}, the decoder {decoded:?}"),
    }
}

fn encode(items: &[Item], crcs: &[u32]) -> Vec<u8> {
    let items_bytes = items.iter().map(Item::encoded_bytes).sum();
    let mut out = vec![0xFF; header_blocks_for(items_bytes, crcs.len()) * BLOCK];
    Header::encode(&location(), items, crcs, &KEY, &mut out);
    out
}

proptest! {
    #[test]
    fn headers_round_trip(items in prop::collection::vec(item(), 0..40), seed: u32) {
        let payload: u32 = items.iter().map(Item::payload).sum();
        let crcs: Vec<u32> = (0..payload).map(|index| seed.wrapping_mul(index + 1)).collect();
        let bytes = encode(&items, &crcs);
        let unverified = UnverifiedHeader::parse(&bytes).unwrap();
        prop_assert_eq!(usize::from(unverified.blocks()) * BLOCK, bytes.len());
        let header = unverified.verify(&bytes, &KEY).unwrap();
        prop_assert_eq!(header.location, location());
        prop_assert_eq!(header.items, items);
        prop_assert_eq!(header.crcs, crcs);
    }

    #[test]
    fn any_flipped_bit_is_detected(at in prop_oneof![0usize..96 + 16 + 8, 0usize..BLOCK], bit in 0u8..8) {
        let items = [Item::Write { layer: LayerId::new(20), block: LayerBlock::new(5), count: 2 }];
        let mut bytes = encode(&items, &[1, 2]);
        bytes[at] ^= 1 << bit;
        let result = UnverifiedHeader::parse(&bytes).and_then(|header| header.verify(&bytes, &KEY));
        // Reserved bytes and padding are covered as well.
        prop_assert!(result.is_err(), "byte {at} bit {bit}");
    }

    #[test]
    fn decoding_arbitrary_bytes_does_not_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..BLOCK), with_magic: bool) {
        if with_magic && bytes.len() > 12 {
            bytes[..4].copy_from_slice(b"GREC");
            bytes[4..8].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        }
        if let Ok(header) = UnverifiedHeader::parse(&bytes) {
            prop_assert!(header.verify(&bytes, &KEY).is_err());
        }
    }
}

#[test]
fn a_header_under_another_key_is_refused() {
    let bytes = encode(&[Item::DropLayer { layer: LayerId::new(20) }], &[]);
    let header = UnverifiedHeader::parse(&bytes).unwrap();
    assert_eq!(header.verify(&bytes, &PoolKey([1; 16])), Err(FormatError::Checksum));
}

#[test]
fn another_version_is_refused() {
    let mut bytes = encode(&[], &[]);
    bytes[4] = 99;
    assert_eq!(UnverifiedHeader::parse(&bytes).err(), Some(FormatError::Version { found: 99 }));
}

#[test]
#[should_panic(expected = "the encoder was given an invalid payload count")]
fn encoding_payload_without_a_crc_panics() {
    encode(&[Item::Table { index: 0 }], &[]);
}

#[test]
fn records_up_to_the_size_limits_are_accepted() {
    let table = Item::Table { index: 0 };
    let dropped = Item::DropLayer { layer: LayerId::new(20) };
    let moved = Item::Move {
        layer: LayerId::new(20),
        block: LayerBlock::new(5),
        count: 1,
        from: Address::new(SegmentId::new(1), Column::new(0), Row::new(0)),
    };
    let (items, payload) = (RECORD_ITEMS_MAX, RECORD_PAYLOAD_MAX);
    assert_record(true, &location(), &vec![table; items], items);
    assert_record(false, &location(), &vec![table; items + 1], items + 1);
    assert_record(true, &location(), &vec![dropped; items], 0);
    assert_record(false, &location(), &vec![dropped; items + 1], 0);
    // The largest possible header.
    assert_record(true, &location(), &vec![moved; items], items);
    assert_eq!(usize::from(HeaderSize::of(&vec![moved; items], items).blocks), HEADER_BLOCKS_MAX);
    let write = |count| Item::Write { layer: LayerId::new(20), block: LayerBlock::new(5), count };
    assert_record(true, &location(), &[write(payload as u16)], payload);
    assert_record(false, &location(), &[write(payload as u16 + 1)], payload + 1);
    assert_record(false, &location(), &[write(2)], 1);
    assert_record(false, &location(), &[write(2)], 3);
}

#[test]
fn sequences_count_from_1() {
    let location = |sequence| RecordLocation { sequence: Sequence::new(sequence), ..location() };
    assert_record(true, &location(1), &[], 0);
    assert_record(false, &location(0), &[], 0);
}

/// Returns a header with a changed `used` field, under a valid MAC.
fn with_used(mut bytes: Vec<u8>, used: usize) -> Result<Header, FormatError> {
    bytes[84..88].copy_from_slice(&(used as u32).to_le_bytes());
    bytes[MAC_AT..MAC_AT + MAC_BYTES].fill(0);
    let mac = KEY.mac(&[&bytes[..used]]);
    bytes[MAC_AT..MAC_AT + MAC_BYTES].copy_from_slice(&mac);
    UnverifiedHeader::parse(&bytes)?.verify(&bytes, &KEY)
}

#[test]
fn a_used_length_that_differs_from_the_contents_is_refused() {
    let items = [Item::DropLayer { layer: LayerId::new(20) }];
    let (bytes, used) = (encode(&items, &[]), HeaderSize::of(&items, 0).used);
    let wrong = Err(FormatError::Invalid("header length"));
    assert!(with_used(bytes.clone(), used).is_ok());
    assert_eq!(with_used(bytes.clone(), used + 4), wrong);
    let mut longer = [bytes, vec![0; BLOCK]].concat();
    longer[8] = 2;
    assert_eq!(with_used(longer, used), wrong);
}

#[test]
fn header_blocks_outside_1_to_8_are_refused() {
    let bytes = encode(&[], &[]);
    let parsed = |blocks| {
        let mut bytes = bytes.clone();
        bytes[8] = blocks;
        UnverifiedHeader::parse(&bytes).map(|header| header.blocks())
    };
    assert_eq!((parsed(1), parsed(8)), (Ok(1), Ok(8)));
    for blocks in [0, 9, 255] {
        assert_eq!(parsed(blocks), Err(FormatError::Invalid("header length")), "{blocks}");
    }
}

#[test]
fn a_record_has_header_and_payload_blocks() {
    let write = Item::Write { layer: LayerId::new(20), block: LayerBlock::new(5), count: 1000 };
    let (header, _) = written(&location(), &[write], 1000);
    assert_eq!((header.header_blocks, header.payload_blocks(), header.blocks()), (2, 1000, 1002));
    // 96 bytes for the fixed part, 4 for each block.
    for (items, payload, blocks) in [(0, 0, 1), (0, 1000, 1), (0, 1001, 2), (4000, 0, 1), (4001, 0, 2)] {
        assert_eq!(header_blocks_for(items, payload), blocks, "{items} {payload}");
    }
}
