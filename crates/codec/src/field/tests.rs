//! The laws of the field, and multiplication against long multiplication of polynomials.

use super::*;

/// Multiplies by the definition: shift, add, reduce.
fn by_definition(a: u8, b: u8) -> u8 {
    let (mut a, mut product) = (u16::from(a), 0u16);
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= a;
        }
        a <<= 1;
        if a & 0x100 != 0 {
            a ^= POLYNOMIAL;
        }
    }
    product as u8
}

#[test]
fn products_match_the_definition() {
    for a in 0..=255 {
        for b in 0..=255 {
            assert_eq!(multiply(a, b), by_definition(a, b), "{a} * {b}");
        }
    }
}

#[test]
fn inverses_multiply_to_one() {
    for a in 1..=255 {
        assert_eq!(multiply(a, inverse(a)), 1, "{a}");
    }
}
