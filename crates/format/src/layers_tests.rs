//! The layer table: round trips, and refusal of invalid records.

use proptest::prelude::*;

use super::*;
use crate::testing::{assert_both, encoded};
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
fn invalid_records_are_refused() {
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

/// Asserts that encoder and decoder agree on a record.
#[track_caller]
fn check(accepted: bool, entry: LayerEntry) {
    let entries = vec![entry];
    assert_both(accepted, &entries, &write_layers(&entries), || encode_layers(&entries), decode_layers);
}

#[test]
fn invalid_heights_are_refused() {
    let of = |height, root| LayerEntry::Layer(LayerRecord { height, root, ..layer(20) });
    let root = layer(20).root;
    check(true, of(HEIGHT_MAX, root));
    check(false, of(HEIGHT_MAX + 1, root));
    check(true, of(1, root));
    check(false, of(0, root));
    check(true, of(0, MapEntry::ABSENT));
    check(true, of(0, MapEntry::ZERO));
    check(false, of(1, MapEntry::ABSENT));
    check(false, of(1, MapEntry::ZERO));
    check(true, LayerEntry::Layer(layer(u32::MAX)));
    // Layer 0 marks an unused slot.
    assert!(encoded(|| encode_layers(&[LayerEntry::Layer(layer(0))])).is_none());
}

#[test]
fn invalid_merges_are_refused() {
    let of = |layer, into, until: Option<u64>| {
        let (layer, into) = (LayerId::new(layer), LayerId::new(into));
        LayerEntry::Merged(MergedRecord { layer, into, until: until.map(Incarnation::new) })
    };
    check(true, of(30, 31, None));
    check(true, of(30, 31, Some(1)));
    check(false, of(30, 30, None));
    check(false, of(30, 0, None));
    for entry in [of(0, 30, None), of(30, 31, Some(0))] {
        assert!(encoded(|| encode_layers(&[entry])).is_none(), "{entry:?}");
    }
}

#[test]
fn encoding_too_many_layers_panics() {
    let full: Vec<_> = (1..=LAYERS_PER_BLOCK as u32).map(|number| LayerEntry::Layer(layer(number))).collect();
    assert_eq!(decode_layers(&encode_layers(&full)), Ok(full.clone()));
    let overfull = [full, vec![LayerEntry::Layer(layer(1000))]].concat();
    assert!(encoded(|| encode_layers(&overfull)).is_none());
}

proptest! {
    #[test]
    fn decoding_arbitrary_bytes_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..=BLOCK)) {
        let _ = decode_layers(&bytes);
    }
}
