//! The `pshufb` multiplication tables.
//!
//! Owns one constant. Must not know its users.
#![allow(clippy::indexing_slicing, reason = "loop bounds beside each index")]

use crate::field::multiply;

/// For each element c, the products with every low nibble (c * 0x00..=0x0F), then with every high
/// nibble (c * 0x00, 0x10, ..., 0xF0): `c * x == NIBBLES[c][x & 15] ^ NIBBLES[c][16 + (x >> 4)]`.
/// This is the table of Plank, Greenan and Miller, "Screaming Fast Galois Field Arithmetic Using
/// Intel SIMD Instructions" (FAST 2013); a multiplication takes two `pshufb`.
pub(super) static NIBBLES: [[u8; 32]; 256] = nibbles();

const fn nibbles() -> [[u8; 32]; 256] {
    let mut tables = [[0u8; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut x = 0;
        while x < 16 {
            tables[c][x] = multiply(c as u8, x as u8);
            tables[c][16 + x] = multiply(c as u8, (x << 4) as u8);
            x += 1;
        }
        c += 1;
    }
    tables
}

#[cfg(test)]
mod tests;
