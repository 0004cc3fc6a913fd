//! Volume records: round trips, and refusal of invalid records.

use super::*;
use crate::testing::{assert_both, encoded};

#[test]
fn records_round_trip() {
    for (kind, state, parent) in [
        (VolumeKind::Volume, VolumeState::Ready, None),
        (VolumeKind::Snapshot, VolumeState::Deleting, Some(LayerId::new(17))),
    ] {
        let record = VolumeRecord {
            id: VolumeId::new(5),
            name: "vm01".into(),
            kind,
            state,
            size: 10 << 30,
            sector: 512,
            layer: LayerId::new(18),
            parent,
            created: 1_700_000_000,
            qos: QosLimits { weight: 200, burst_ms: 2000, operations: 5000, bytes: 1 << 30 },
            thick: parent.is_none(),
            spread: VolumeSpread { first: 63, shards: if parent.is_none() { 1 } else { 64 } },
        };
        assert_eq!(VolumeRecord::decode(&record.encode()), Ok(record));
    }
}

/// Returns a valid record, except perhaps for the size or the spread.
fn record(size: u64, spread: VolumeSpread) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId::new(5),
        name: "vm01".into(),
        kind: VolumeKind::Volume,
        state: VolumeState::Ready,
        size,
        sector: 4096,
        layer: LayerId::new(18),
        parent: None,
        created: 0,
        qos: QosLimits::default(),
        thick: false,
        spread,
    }
}

/// Asserts that encoder and decoder agree on a record.
#[track_caller]
fn check(accepted: bool, record: &VolumeRecord) {
    assert_both(accepted, record, &record.write(), || record.encode(), VolumeRecord::decode);
}

#[test]
fn sizes_are_multiples_of_the_sector_up_to_the_limit() {
    let of = |size, sector| VolumeRecord { sector, ..record(size, VolumeSpread::default()) };
    for (accepted, size, sector) in [
        (true, 0, 4096),
        (true, 512, 512),
        (false, 512, 4096),
        (false, 511, 512),
        (true, VOLUME_MAX, 512),
        (true, VOLUME_MAX, 4096),
        (false, VOLUME_MAX + 512, 512),
        (false, VOLUME_MAX + 4096, 4096),
        (false, VOLUME_MAX + 1, 512),
        (false, 4096, 0),
        (false, 4096, 1024),
    ] {
        check(accepted, &of(size, sector));
    }
}

#[test]
fn layers_outside_the_volume_range_are_refused() {
    let of = |layer, parent: Option<u32>| VolumeRecord {
        layer: LayerId::new(layer),
        parent: parent.map(LayerId::new),
        ..record(4096, VolumeSpread::default())
    };
    for (accepted, layer, parent) in [
        (true, 16, None),
        (true, u32::MAX, Some(16)),
        (false, 15, None),
        (false, 2, None),
        (false, 0, None),
        (false, 17, Some(15)),
        (false, 17, Some(17)),
    ] {
        check(accepted, &of(layer, parent));
    }
    // No parent is stored as 0, so parent 0 would be decoded as no parent.
    assert!(encoded(|| of(17, Some(0)).encode()).is_none());
}

#[test]
fn names_up_to_two_names_and_a_separator_are_accepted() {
    let of = |length| VolumeRecord { name: "n".repeat(length), ..record(4096, VolumeSpread::default()) };
    let longest = of(2 * NAME_MAX + 1);
    check(true, &longest);
    check(true, &of(0));
    assert!(encoded(|| of(2 * NAME_MAX + 2).encode()).is_none());
    let mut bytes = longest.encode();
    bytes[44] += 1;
    assert_eq!(VolumeRecord::decode(&bytes), Err(FormatError::Invalid("text length")));
}

#[test]
fn invalid_values_are_refused() {
    let bytes = record(4096, VolumeSpread::default()).encode();
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        VolumeRecord::decode(&bytes).map(|_| ())
    };
    for byte in [0, 3, 255] {
        assert_eq!(with(12, byte), Err(FormatError::Invalid("volume kind")), "{byte}");
        assert_eq!(with(13, byte), Err(FormatError::Invalid("volume state")), "{byte}");
    }
    assert_eq!((with(14, 0), with(14, 1)), (Ok(()), Ok(())));
    assert_eq!(with(14, 2), Err(FormatError::Invalid("volume flags")));
    assert_eq!(VolumeRecord::decode(&bytes[..BLOCK - 1]), Err(FormatError::Truncated));
    let longer = [bytes.as_slice(), &[0]].concat();
    assert_eq!(VolumeRecord::decode(&longer), Err(FormatError::Invalid("block size")));
}

#[test]
fn space_is_reserved_for_ready_thick_volumes() {
    for (kind, state, thick, reserves) in [
        (VolumeKind::Volume, VolumeState::Ready, true, true),
        (VolumeKind::Volume, VolumeState::Ready, false, false),
        (VolumeKind::Volume, VolumeState::Deleting, true, false),
        (VolumeKind::Snapshot, VolumeState::Ready, true, false),
    ] {
        let record = VolumeRecord { kind, state, thick, ..record(4096, VolumeSpread::default()) };
        assert_eq!(record.reserves_space(), reserves, "{record:?}");
    }
}

#[test]
fn a_spread_fits_a_pool_with_all_of_its_shards() {
    for (first, shards, of, fits) in
        [(0, 0, 1, true), (1, 0, 2, false), (1, 2, 2, true), (2, 1, 2, false), (0, 3, 2, false)]
    {
        assert_eq!(VolumeSpread { first, shards }.fits(of), fits, "{first} {shards} of {of}");
    }
}

#[test]
fn a_spread_beyond_the_maximum_shards_is_refused() {
    for (first, shards) in [(0, 0), (0, 1), (63, 64)] {
        check(true, &record(4096, VolumeSpread { first, shards }));
    }
    for (first, shards) in [(1, 0), (64, 1), (0, 65)] {
        check(false, &record(4096, VolumeSpread { first, shards }));
    }
}
