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
        };
        assert_eq!(VolumeRecord::decode(&record.encode()), Ok(record));
    }
}

#[test]
fn a_size_that_is_no_multiple_of_the_sector_is_refused() {
    let record = VolumeRecord {
        id: VolumeId::new(5),
        name: "vm01".into(),
        kind: VolumeKind::Volume,
        state: VolumeState::Ready,
        size: 512,
        sector: 4096,
        layer: LayerId::new(18),
        parent: None,
        created: 0,
        service: VolumeService::default(),
        thick: false,
    };
    assert_eq!(VolumeRecord::decode(&record.encode()), Err(FormatError::Invalid("volume size")));
}
