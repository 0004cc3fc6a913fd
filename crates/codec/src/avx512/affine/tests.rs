//! The matrices against the field, for every coefficient and byte.

use super::*;

/// Emulates gf2p8affineqb: bit i of the result is the parity of matrix byte 7 - i and the operand.
fn affine_byte(matrix: u64, x: u8) -> u8 {
    (0..8).fold(0, |out, i| out | (((matrix.to_le_bytes()[7 - i] & x).count_ones() as u8 & 1) << i))
}

#[test]
fn affine_matrices_multiply() {
    for (c, &matrix) in AFFINE.iter().enumerate() {
        for x in 0..=255u8 {
            assert_eq!(affine_byte(matrix, x), multiply(c as u8, x));
        }
    }
}
