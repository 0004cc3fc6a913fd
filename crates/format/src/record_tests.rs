//! Record headers: there and back, and every damage noticed.

use proptest::prelude::*;

use super::*;
use crate::Column;

const KEY: PoolKey = PoolKey(*b"0123456789abcdef");

fn place() -> RecordPlace {
    RecordPlace {
        pool: PoolId(*b"pool pool pool p"),
        shard: ShardIndex::new(3),
        segment: SegmentId::new(7),
        incarnation: Incarnation::new(11),
        row: Row::new(13),
        sequence: Sequence::new(17),
        durable: Sequence::new(16),
    }
}

fn item() -> impl Strategy<Value = Item> {
    let layer = any::<u32>().prop_map(LayerId::new);
    let block = (0..LAYER_BLOCKS_MAX - 70_000).prop_map(LayerBlock::new);
    let from = (1u32.., any::<u8>(), 0u32..1 << 24).prop_map(|(segment, column, row)| {
        Address::new(SegmentId::new(segment), Column::new(column), Row::new(row))
    });
    let mode = prop_oneof![Just(UnmapMode::Absent), Just(UnmapMode::Zero)];
    (0..7, layer, block, 1u16..20, from, mode, any::<u8>()).prop_map(
        |(kind, layer, block, count, from, mode, level)| match kind {
            0 => Item::Write { layer, block, count },
            1 => Item::Move { layer, block, count, from },
            2 => Item::Unmap { layer, block, count: u64::from(count), mode },
            3 => Item::Node { layer, level, index: block.get() },
            4 => Item::Table { index: layer.get() },
            5 => {
                let into = LayerId::new(layer.get().wrapping_add(1));
                Item::Merge { from: layer, into, block, count: u32::from(count) }
            }
            _ => Item::DropLayer { layer },
        },
    )
}

fn encode(items: &[Item], crcs: &[u32]) -> Vec<u8> {
    let items_bytes = items.iter().map(Item::encoded_bytes).sum();
    let mut out = vec![0xFF; header_blocks_for(items_bytes, crcs.len()) * BLOCK];
    Header::encode(&place(), items, crcs, &KEY, &mut out);
    out
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(items in prop::collection::vec(item(), 0..40), seed: u32) {
        let payload: u32 = items.iter().map(Item::payload).sum();
        let crcs: Vec<u32> = (0..payload).map(|index| seed.wrapping_mul(index + 1)).collect();
        let bytes = encode(&items, &crcs);
        let unverified = UnverifiedHeader::parse(&bytes).unwrap();
        prop_assert_eq!(usize::from(unverified.blocks()) * BLOCK, bytes.len());
        let header = unverified.verify(&bytes, &KEY).unwrap();
        prop_assert_eq!(header.place, place());
        prop_assert_eq!(header.items, items);
        prop_assert_eq!(header.crcs, crcs);
    }

    #[test]
    fn any_flipped_bit_is_noticed(at in prop_oneof![0usize..96 + 16 + 8, 0usize..BLOCK], bit in 0u8..8) {
        let items = [Item::Write { layer: LayerId::new(20), block: LayerBlock::new(5), count: 2 }];
        let mut bytes = encode(&items, &[1, 2]);
        bytes[at] ^= 1 << bit;
        let result = UnverifiedHeader::parse(&bytes).and_then(|header| header.verify(&bytes, &KEY));
        // The reserved bytes are covered too, and the zeros that fill the block.
        prop_assert!(result.is_err(), "byte {at} bit {bit}");
    }

    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..BLOCK), claim: bool) {
        if claim && bytes.len() > 12 {
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
fn another_version_is_named() {
    let mut bytes = encode(&[], &[]);
    bytes[4] = 99;
    assert_eq!(UnverifiedHeader::parse(&bytes).err(), Some(FormatError::Version { found: 99 }));
}

#[test]
#[should_panic(expected = "one CRC for each payload block")]
fn payload_without_a_crc_is_a_bug() {
    encode(&[Item::Table { index: 0 }], &[]);
}
