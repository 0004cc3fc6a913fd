//! The layer table: there and back, and what no writer stores is refused.

use proptest::prelude::*;

use super::*;
use crate::{Address, Column, Row, SegmentId};

fn layer(number: u32) -> LayerRecord {
    let root = MapEntry::block(Address::new(SegmentId::new(4), Column::new(1), Row::new(2)), 9);
    LayerRecord { layer: LayerId::new(number), height: 3, root, stored: 12345 }
}

fn merged(until: Option<u64>) -> MergedRecord {
    let until = until.map(Incarnation::new);
    MergedRecord { layer: LayerId::new(30), into: LayerId::new(31), until }
}

#[test]
fn layers_round_trip() {
    let empty = LayerRecord { layer: LayerId::new(1), height: 0, root: MapEntry::ABSENT, stored: 0 };
    let entries = [
        LayerEntry::Layer(empty),
        LayerEntry::Layer(layer(20)),
        LayerEntry::Merged(merged(None)),
        LayerEntry::Merged(merged(Some(77))),
    ];
    assert_eq!(decode_layers(&encode_layers(&entries)), Ok(entries.to_vec()));
}

#[test]
fn records_that_no_writer_stores_are_refused() {
    let change = |entry: LayerEntry, at: usize, byte: u8| {
        let mut bytes = encode_layers(&[entry]);
        bytes[at] = byte;
        decode_layers(&bytes)
    };
    let plain = LayerEntry::Layer(layer(20));
    assert_eq!(change(plain, 4, 3), Err(FormatError::Invalid("layer kind")));
    assert_eq!(change(plain, 5, 0), Err(FormatError::Invalid("layer height")));
    assert_eq!(change(plain, 5, 6), Err(FormatError::Invalid("layer height")));
    let merged = LayerEntry::Merged(merged(None));
    assert_eq!(change(merged, 8, 0), Err(FormatError::Invalid("merged layer")));
    assert_eq!(change(merged, 8, 30), Err(FormatError::Invalid("merged layer")));
}

proptest! {
    #[test]
    fn no_block_panics_the_decoder(bytes in prop::collection::vec(any::<u8>(), 0..=BLOCK)) {
        let _ = decode_layers(&bytes);
    }
}
