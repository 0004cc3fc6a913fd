//! Enumeration of column combinations, and the comparison of blocks with their CRCs.

use super::*;

#[test]
fn every_combination_is_tried_once() {
    let mut seen = Vec::new();
    let present: ColumnSet = [0, 2, 3, 7, 9].into_iter().collect();
    assert!(!combinations(present, 3, |sources| {
        seen.push(sources);
        false
    }));
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|sources| sources.len() == 3));
    seen.sort_by_key(|sources| sources.bits());
    seen.dedup();
    assert_eq!(seen.len(), 10);
}

#[test]
fn the_search_ends_at_the_first_accepted_combination() {
    let mut tries = 0;
    assert!(combinations(ColumnSet::first(6), 4, |_| {
        tries += 1;
        tries == 3
    }));
    assert_eq!(tries, 3);
    assert!(!combinations(ColumnSet::first(2), 3, |_| true), "too few columns");
}

#[test]
fn a_changed_bit_or_crc_of_any_block_is_found() {
    for count in [1, 2, VERIFIED_AT_ONCE, VERIFIED_AT_ONCE + 1, 3 * VERIFIED_AT_ONCE - 1] {
        let mut bytes: Vec<u8> = (0..count * BLOCK).map(|at| (at / 7 % 253) as u8).collect();
        let mut crcs: Vec<u32> = bytes.chunks(BLOCK).map(crc32c).collect();
        assert!(verify(&bytes, &crcs));
        for block in [0, count / 2, count - 1] {
            bytes[block * BLOCK + 4095] ^= 1;
            assert!(!verify(&bytes, &crcs), "block {block} of {count}");
            bytes[block * BLOCK + 4095] ^= 1;
            crcs[block] ^= 1 << 31;
            assert!(!verify(&bytes, &crcs), "CRC {block} of {count}");
            crcs[block] ^= 1 << 31;
        }
        assert!(verify(&bytes, &crcs));
    }
}
