//! Arithmetic in GF(2^8) = GF(2)\[x\] / (x^8 + x^4 + x^3 + x^2 + 1), polynomial 0x11D, one element
//! at a time.
//!
//! Owns the field. Addition is XOR and needs no function. The polynomial is part of the on-disk
//! format: changing it would invalidate every stored parity. Must not know about columns, codes or
//! instruction sets.
#![allow(
    clippy::indexing_slicing,
    reason = "every index is a u8 into a table of 256, or a loop bound beside it"
)]

/// The field polynomial, also used by RAID 6, ISA-L and most storage codes. 2 is a generator of the
/// 255 non-zero elements.
const POLYNOMIAL: u16 = 0x11D;

/// `EXP[i]` is 2^i for i in 0..510, stored twice so that a sum of two logarithms needs no
/// reduction.
const EXP: [u8; 510] = exponentials();
/// `LOG[a]` is the i in 0..255 with 2^i = a; `LOG[0]` is unused.
const LOG: [u8; 256] = logarithms();

const fn exponentials() -> [u8; 510] {
    let mut table = [0u8; 510];
    let mut power = 1u16;
    let mut i = 0;
    while i < 255 {
        table[i] = power as u8;
        table[i + 255] = power as u8;
        power <<= 1;
        if power & 0x100 != 0 {
            power ^= POLYNOMIAL;
        }
        i += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut i = 0;
    while i < 255 {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
}

/// Returns the product of two elements.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { EXP[LOG[a as usize] as usize + LOG[b as usize] as usize] }
}

/// Returns the multiplicative inverse of `a`. Panics if `a` is zero.
pub(crate) const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[255 - LOG[a as usize] as usize]
}

/// Returns 2^exponent. The exponent must be below 510.
pub(crate) const fn power_of_two(exponent: u16) -> u8 {
    EXP[exponent as usize]
}

#[cfg(test)]
mod tests;
