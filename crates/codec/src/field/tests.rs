use super::*;

/// Multiplication straight from the definition: shift, add, reduce.
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
fn products_are_those_of_the_definition() {
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

#[test]
fn nibble_tables_multiply() {
    for (c, table) in NIBBLES.iter().enumerate() {
        for x in 0..=255u8 {
            let product = table[usize::from(x & 15)] ^ table[16 + usize::from(x >> 4)];
            assert_eq!(product, multiply(c as u8, x));
        }
    }
}

/// The pseudocode of gf2p8affineqb: bit i of the result is the parity of matrix byte 7 - i and the operand.
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
