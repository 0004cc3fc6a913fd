//! Volume records: there and back, and what no writer stores is refused.

use super::*;

#[test]
fn what_is_encoded_is_decoded() {
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
            service: VolumeService { weight: 200, burst_ms: 2000, operations: 5000, bytes: 1 << 30 },
            thick: parent.is_none(),
            spread: VolumeSpread { first: 63, shards: if parent.is_none() { 1 } else { 64 } },
        };
        assert_eq!(VolumeRecord::decode(&record.encode()), Ok(record));
    }
}

/// As a writer stores it, but for the size or the spread.
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
        service: VolumeService::default(),
        thick: false,
        spread,
    }
}

#[test]
fn a_size_that_is_no_multiple_of_the_sector_is_refused() {
    let record = record(512, VolumeSpread::default());
    assert_eq!(VolumeRecord::decode(&record.encode()), Err(FormatError::Invalid("volume size")));
}

#[test]
fn a_spread_fits_where_there_are_its_shards() {
    for (first, shards, of, fits) in
        [(0, 0, 1, true), (1, 0, 2, false), (1, 2, 2, true), (2, 1, 2, false), (0, 3, 2, false)]
    {
        assert_eq!(VolumeSpread { first, shards }.fits(of), fits, "{first} {shards} of {of}");
    }
}

#[test]
fn a_spread_that_no_pool_has_is_refused() {
    let decoded = |first, shards| {
        let record = record(4096, VolumeSpread { first, shards });
        VolumeRecord::decode(&record.encode()).map(|found| assert_eq!(found, record))
    };
    for (first, shards) in [(0, 0), (0, 1), (63, 64)] {
        assert_eq!(decoded(first, shards), Ok(()), "{first} {shards}");
    }
    for (first, shards) in [(1, 0), (64, 1), (0, 65)] {
        assert_eq!(decoded(first, shards), Err(FormatError::Invalid("volume spread")), "{first} {shards}");
    }
}
