//! The bit matrices for multiplication with `gf2p8affineqb`.
//!
//! Owns one constant. Must not know its users.
#![allow(clippy::indexing_slicing, reason = "loop bounds beside each index")]

use crate::field::multiply;

/// For each element c, the 8 x 8 bit matrix of "times c" in the order of `gf2p8affineqb`: byte 7 -
/// i of the word is the row for bit i. GFNI's own multiplication is limited to the polynomial
/// 0x11B; the affine instruction works for any field, since multiplication by a constant is linear
/// over GF(2).
pub(super) static AFFINE: [u64; 256] = affine();

const fn affine() -> [u64; 256] {
    let mut matrices = [0u64; 256];
    let mut c = 0;
    while c < 256 {
        let mut matrix = 0u64;
        let mut j = 0;
        while j < 8 {
            let product = multiply(c as u8, 1 << j);
            let mut i = 0;
            while i < 8 {
                if product >> i & 1 == 1 {
                    matrix |= 1 << (8 * (7 - i) + j);
                }
                i += 1;
            }
            j += 1;
        }
        matrices[c] = matrix;
        c += 1;
    }
    matrices
}

#[cfg(test)]
mod tests;
