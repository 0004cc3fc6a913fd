//! Items at the limits of the format: encoder and decoder agree on each of them.

use proptest::prelude::*;

use super::*;
use crate::record::tests::{assert_record, location};
use crate::{Column, Row, SegmentId};

const LAYER: LayerId = LayerId::new(20);
const END: u64 = LAYER_BLOCKS_MAX;

fn address(column: u8, row: u32) -> Address {
    Address::new(SegmentId::new(3), Column::new(column), Row::new(row))
}

fn write(layer: u32, block: u64, count: u16) -> Item {
    Item::Write { layer: LayerId::new(layer), block: LayerBlock::new(block), count }
}

fn moved(block: u64, count: u16, from: Address) -> Item {
    Item::Move { layer: LAYER, block: LayerBlock::new(block), count, from }
}

fn unmap(block: u64, count: u64) -> Item {
    Item::Unmap { layer: LAYER, block: LayerBlock::new(block), count, mode: UnmapMode::Zero }
}

fn merge(from: u32, into: u32, block: u64, count: u32) -> Item {
    let (from, into) = (LayerId::new(from), LayerId::new(into));
    Item::Merge { from, into, block: LayerBlock::new(block), count }
}

fn node(layer: u32, level: u8, index: u64) -> Item {
    Item::Node { layer: LayerId::new(layer), level, index }
}

fn check(cases: &[(bool, Item)]) {
    for (accepted, item) in cases {
        assert_record(*accepted, &location(), &[*item], item.payload() as usize);
    }
}

#[test]
fn ranges_beyond_the_layer_are_refused() {
    let (first, last) = (address(0, 0), END - 1);
    check(&[
        (true, write(20, last, 1)),
        (false, write(20, last, 2)),
        (false, write(20, END, 1)),
        (false, write(20, 0, 0)),
        (false, write(20, u64::MAX, 1)),
        (true, moved(last, 1, first)),
        (false, moved(last, 2, first)),
        (false, moved(0, 0, first)),
        (true, unmap(0, END)),
        (true, unmap(last, 1)),
        (false, unmap(0, END + 1)),
        (false, unmap(1, END)),
        (false, unmap(1, u64::MAX)),
        (false, unmap(0, 0)),
        (true, merge(20, 21, last, 1)),
        (true, merge(20, 21, END - u64::from(u32::MAX), u32::MAX)),
        (false, merge(20, 21, last, 2)),
        (false, merge(20, 21, END - u64::from(u32::MAX) + 1, u32::MAX)),
        (false, merge(20, 21, 0, 0)),
    ]);
}

#[test]
fn layer_0_and_self_merges_are_refused() {
    check(&[
        (true, write(1, 0, 1)),
        (false, write(0, 0, 1)),
        (true, merge(20, u32::MAX, 0, 1)),
        (false, merge(20, 20, 0, 1)),
        (false, merge(0, 20, 0, 1)),
        (false, merge(20, 0, 0, 1)),
        (true, Item::DropLayer { layer: LayerId::new(u32::MAX) }),
        (false, Item::DropLayer { layer: LayerId::new(0) }),
        (
            false,
            Item::Move { layer: LayerId::new(0), block: LayerBlock::new(0), count: 1, from: address(0, 0) },
        ),
        (
            false,
            Item::Unmap {
                layer: LayerId::new(0),
                block: LayerBlock::new(0),
                count: 1,
                mode: UnmapMode::Absent,
            },
        ),
        (false, node(0, 0, 0)),
    ]);
}

#[test]
fn moves_from_outside_a_segment_are_refused() {
    let (last_row, last_column) = (ROWS_MAX - 1, (COLUMNS_MAX - 1) as u8);
    check(&[
        (true, moved(0, 1, address(last_column, last_row))),
        (true, moved(0, 1024, address(0, ROWS_MAX - 1024))),
        (false, moved(0, 1, address(0, ROWS_MAX))),
        (false, moved(0, 2, address(0, last_row))),
        (false, moved(0, 1024, address(0, ROWS_MAX - 1023))),
        (false, moved(0, 1, address(0, (1 << 24) - 1))),
        (false, moved(0, 1, address(last_column + 1, 0))),
    ]);
}

#[test]
fn nodes_beyond_the_largest_map_are_refused() {
    // 2^38 blocks: 2^30 leaves, 2^22 nodes above them, and so on; the root is alone on the fifth
    // level.
    check(&[
        (true, node(20, 0, (1 << 30) - 1)),
        (false, node(20, 0, 1 << 30)),
        (true, node(20, 1, (1 << 22) - 1)),
        (false, node(20, 1, 1 << 22)),
        (true, node(20, 2, (1 << 14) - 1)),
        (false, node(20, 2, 1 << 14)),
        (true, node(20, 3, (1 << 6) - 1)),
        (false, node(20, 3, 1 << 6)),
        (true, node(20, HEIGHT_MAX - 1, 0)),
        (false, node(20, HEIGHT_MAX - 1, 1)),
        (false, node(20, HEIGHT_MAX, 0)),
        (false, node(20, u8::MAX, 0)),
    ]);
}

#[test]
fn table_blocks_beyond_the_largest_checkpoint_are_refused() {
    let last = (TABLE_BLOCKS_MAX + ROOT_POINTERS_MAX) as u32;
    check(&[
        (true, Item::Table { index: 0 }),
        (true, Item::Table { index: last }),
        (false, Item::Table { index: last + 1 }),
        (false, Item::Table { index: u32::MAX }),
    ]);
}

/// Returns the decoded item after one of its bytes was changed.
fn changed(item: Item, at: usize, byte: u8) -> Result<Item, FormatError> {
    let mut bytes = Vec::new();
    item.write(&mut Writer::new(&mut bytes));
    assert_eq!(bytes.len(), item.encoded_bytes());
    assert_eq!(Item::decode(&mut Reader::new(&bytes)), Ok(item));
    bytes[at] = byte;
    Item::decode(&mut Reader::new(&bytes))
}

#[test]
fn nonzero_unused_fields_are_refused() {
    let field = Err(FormatError::Invalid("item field"));
    for (item, used) in [
        (write(20, 5, 2), &[2, 3][..]),
        (moved(5, 2, address(1, 2)), &[2, 3]),
        (unmap(5, 2), &[1]),
        (merge(20, 21, 5, 2), &[]),
        (Item::DropLayer { layer: LAYER }, &[]),
        (Item::Table { index: 5 }, &[]),
        (node(20, 1, 5), &[1]),
    ] {
        for at in [1, 2, 3] {
            if !used.contains(&at) {
                assert_eq!(changed(item, at, 7), field, "byte {at} of {item:?}");
            }
        }
    }
    assert_eq!(changed(Item::Table { index: 5 }, 4, 1), field);
    assert_eq!(changed(Item::DropLayer { layer: LAYER }, 8, 1), field);
    assert_eq!(changed(unmap(5, 2), 1, 2), Err(FormatError::Invalid("unmap mode")));
    assert_eq!(changed(Item::Table { index: 5 }, 12, 1), Err(FormatError::Invalid("table index")));
    for kind in [0, 8, 255] {
        assert_eq!(changed(write(20, 5, 2), 0, kind), Err(FormatError::Invalid("item kind")));
    }
}

/// Generates numbers near zero, near the limits, and arbitrary ones.
fn number() -> impl Strategy<Value = u64> {
    let near = |edge: u64| (0u64..4).prop_map(move |off| edge.wrapping_add(off).wrapping_sub(2));
    prop_oneof![
        near(0),
        near(END),
        near(u64::from(ROWS_MAX)),
        near(END - u64::from(u32::MAX)),
        near(END >> 8),
        near(TABLE_BLOCKS_MAX as u64 + ROOT_POINTERS_MAX as u64),
        any::<u64>(),
    ]
}

proptest! {
    /// The encoder accepts an arbitrary item if and only if the decoder does.
    #[test]
    fn encoder_and_decoder_agree(kind in 0..7, layer in 0u32..3, number in number(), other in number()) {
        let (id, block) = (LayerId::new(layer), LayerBlock::new(number));
        let from = Address::from_bits(other << 20 | 1 << 32).unwrap();
        let item = match kind {
            0 => Item::Write { layer: id, block, count: other as u16 % 1025 },
            1 => Item::Move { layer: id, block, count: other as u16 % 1025, from },
            2 => Item::Unmap { layer: id, block, count: other, mode: UnmapMode::Absent },
            3 => Item::Node { layer: id, level: other as u8 % 8, index: number },
            4 => Item::Table { index: number as u32 },
            5 => Item::Merge { from: id, into: LayerId::new(other as u32 % 3), block, count: other as u32 },
            _ => Item::DropLayer { layer: id },
        };
        assert_record(item.check().is_ok(), &location(), &[item], item.payload() as usize);
    }
}
