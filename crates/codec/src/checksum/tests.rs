//! CRC-32C: known answers, and every implementation against the oracle for all lengths and
//! alignments.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::implementations;
use crate::testing::noise;

/// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
#[test]
fn published_vectors() {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    for implementation in implementations() {
        let crc = |data: &[u8]| implementation.crc32c_append(0, data);
        assert_eq!(crc(b""), 0);
        assert_eq!(crc(b"123456789"), 0xE306_9283);
        assert_eq!(crc(&[0; 32]), 0x8A91_36AA);
        assert_eq!(crc(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(crc(&ascending), 0x46DD_794E);
        assert_eq!(crc(&descending), 0x113F_DB5C);
        assert_eq!(crc(&[0; 4096]), 0x98F9_4189, "a block of zeros");
    }
}

/// Tests lengths around the block sizes with specialised kernels, at all alignments to a word.
#[test]
fn all_implementations_agree_on_all_lengths() {
    let data = noise(1, 9000);
    for length in (0..1100).chain(4080..4120).chain(4096 + 240..4096 + 270).chain(8180..8200) {
        let data = &data[length % 9..][..length];
        let oracle = Implementation::SCALAR.crc32c_append(0, data);
        for implementation in implementations() {
            assert_eq!(implementation.crc32c_append(0, data), oracle, "{implementation} {length}");
        }
    }
}

#[test]
fn checksums_of_blocks_match_those_of_single_blocks() {
    let data = noise(2, 4096 * 6);
    for size in [4096, 8192, 512, 1000] {
        let data = &data[..data.len() / size * size];
        let mut crcs = vec![0; data.len() / size];
        for implementation in implementations() {
            implementation.crc32c_blocks(data, size, &mut crcs);
            assert_eq!(crcs, data.chunks(size).map(crc32c).collect::<Vec<_>>(), "{implementation} {size}");
        }
    }
    crc32c_blocks(&[], 4096, &mut []);
}

#[test]
#[should_panic(expected = "as many blocks")]
fn a_partial_block_panics() {
    crc32c_blocks(&[0; 6144], 4096, &mut [0; 1]);
}

/// Another thread writes to the source all the time; the checksum must match the copy nevertheless.
#[test]
fn a_changing_source_is_read_once() {
    let source: Vec<AtomicU64> = (0..512).map(AtomicU64::new).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 1u64;
            while !done.load(Ordering::Relaxed) {
                for word in &source {
                    value = value.wrapping_mul(6364136223846793005).wrapping_add(1);
                    word.store(value, Ordering::Relaxed);
                }
            }
        });
        for implementation in implementations().iter().cycle().take(4000) {
            let mut copy = [0u8; 4096];
            let address = source.as_ptr().cast::<u8>();
            // SAFETY: the source is 512 words, which are written atomically only.
            let crc = unsafe { implementation.copy_crc32c(address, copy.as_mut_ptr(), copy.len(), address) };
            assert_eq!(crc, crc32c(&copy), "{implementation}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

proptest! {
    #[test]
    fn appending_parts_matches_the_whole((length, cut) in (0usize..10_000).prop_flat_map(|length| (Just(length), 0..=length)), seed: u64) {
        let data = noise(seed, length);
        let (first, second) = data.split_at(cut);
        let oracle = Implementation::SCALAR.crc32c_append(0, &data);
        for implementation in implementations() {
            let crc = implementation.crc32c_append(implementation.crc32c_append(0, first), second);
            prop_assert_eq!(crc, oracle, "{}", implementation);
        }
        prop_assert_eq!(crc32c_append(crc32c(first), second), oracle);
    }

    #[test]
    fn copies_and_their_checksums_are_correct(length in 0usize..6000, shift in 0usize..64, seed: u64) {
        let source = noise(seed, length + shift);
        let source = &source[shift..];
        let oracle = Implementation::SCALAR.crc32c_append(0, source);
        for implementation in implementations() {
            let mut copy = vec![0xAA; length + 1];
            // SAFETY: both have the required length and do not overlap.
            let crc = unsafe { implementation.copy_crc32c(source.as_ptr(), copy.as_mut_ptr(), length, std::ptr::null()) };
            prop_assert_eq!((crc, &copy[..length], copy[length]), (oracle, source, 0xAA), "{}", implementation);
        }
        let mut copy = vec![0; length];
        prop_assert_eq!((copy_crc32c(source, &mut copy), &copy[..]), (oracle, source));
    }
}
