//! Reads are split at holes.

use proptest::prelude::*;

use super::*;

const KIB: u64 = 1024;

fn extent(kib: u64, data: bool) -> Extent {
    Extent { length: kib * KIB, data }
}

fn planned(offset: u64, length: u64, extents: &[Extent]) -> Vec<(u64, u64, bool)> {
    let range = ByteRange { offset: offset * KIB, length: (length * KIB) as u32 };
    let segments = plan(range, extents);
    let in_kib =
        |segment: &Segment| (segment.range.offset / KIB, u64::from(segment.range.length) / KIB, segment.hole);
    segments.iter().map(in_kib).collect()
}

#[test]
fn only_large_holes_are_reported() {
    assert_eq!(planned(0, 256, &[extent(256, true)]), [(0, 256, false)]);
    assert_eq!(planned(0, 256, &[extent(256, false)]), [(0, 256, true)]);
    let mixed = [extent(64, false), extent(4, true), extent(60, false), extent(128, true)];
    assert_eq!(planned(8, 256, &mixed), [(8, 64, true), (72, 192, false)]);
    assert_eq!(planned(0, 256, &[]), [(0, 256, false)]);
}

#[test]
fn long_data_is_split() {
    assert_eq!(
        planned(1000, 2000, &[extent(2000, true)]),
        [(1000, 24, false), (1024, 1024, false), (2048, 952, false)]
    );
}

proptest! {
    #[test]
    fn every_byte_is_answered_once(
        (offset, length) in (0..1000u64, 1..10_000u64),
        extents in prop::collection::vec((1..3000u64, any::<bool>()), 0..20),
    ) {
        let extents: Vec<Extent> = extents.into_iter().map(|(kib, data)| extent(kib, data)).collect();
        let mut holes = Vec::new();
        let mut at = offset;
        for extent in &extents {
            holes.extend((at..at + extent.length / KIB).map(|_| !extent.data));
            at += extent.length / KIB;
        }
        let mut next = offset;
        for (from, kib, hole) in planned(offset, length, &extents) {
            prop_assert!(from == next && kib > 0);
            if hole {
                prop_assert!(holes[(from - offset) as usize..][..kib as usize].iter().all(|hole| *hole));
                prop_assert!(kib >= u64::from(HOLE_MIN) / KIB);
            } else {
                prop_assert!(kib <= u64::from(UNIT) / KIB);
            }
            next += kib;
        }
        prop_assert_eq!(next, offset + length);
    }
}
