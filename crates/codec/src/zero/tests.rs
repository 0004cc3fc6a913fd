//! Detection of a single nonzero byte.

use crate::implementations;

/// Tests every position in blocks of many lengths.
#[test]
fn a_single_nonzero_byte_is_found() {
    for implementation in implementations() {
        for length in (0..300).chain([4095, 4096, 4097]) {
            let mut data = vec![0u8; length];
            assert!(implementation.is_zero(&data), "{implementation} {length}");
            for at in (0..length).step_by(if length > 300 { 61 } else { 1 }) {
                data[at] = 0x80;
                assert!(!implementation.is_zero(&data), "{implementation} {length} {at}");
                data[at] = 0;
            }
        }
    }
}
