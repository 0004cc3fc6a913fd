//! The tables against the field, for every coefficient and byte.

use super::*;

#[test]
fn nibble_tables_multiply() {
    for (c, table) in NIBBLES.iter().enumerate() {
        for x in 0..=255u8 {
            let product = table[usize::from(x & 15)] ^ table[16 + usize::from(x >> 4)];
            assert_eq!(product, multiply(c as u8, x));
        }
    }
}
