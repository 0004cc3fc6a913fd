//! Arithmetic in GF(2^8) = GF(2)\[x\] / (x^8 + x^4 + x^3 + x^2 + 1), polynomial 0x11D, one element at a time.
//!
//! Owns the field and the constant tables the kernels multiply with. Addition is XOR and has no function here.
//! The polynomial is part of what is on the drives: changing it makes every stored parity wrong.
//! Must not know about columns, codes or instruction sets (beyond the shape of the tables they look up).
#![allow(
    clippy::indexing_slicing,
    reason = "every index is a u8 into a table of 256, or a loop bound beside it"
)]

/// The field polynomial, as RAID 6, ISA-L and most storage codes use it. 2 is a generator of its 255 non-zero elements.
const POLYNOMIAL: u16 = 0x11D;

/// `EXP[i]` is 2^i for i in 0..510, written twice so that a sum of two logarithms needs no reduction.
const EXP: [u8; 510] = exponentials();
/// `LOG[a]` is the i in 0..255 with 2^i = a; `LOG[0]` is meaningless.
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

/// The product of two elements.
pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 { 0 } else { EXP[LOG[a as usize] as usize + LOG[b as usize] as usize] }
}

/// The element whose product with `a` is one. Panics on zero, which has none.
pub(crate) const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[255 - LOG[a as usize] as usize]
}

/// 2^exponent, for exponents below 510.
pub(crate) const fn power_of_two(exponent: u16) -> u8 {
    EXP[exponent as usize]
}

/// For each element c the products with every low nibble (c * 0x00..=0x0F), then with every high nibble
/// (c * 0x00, 0x10, ..., 0xF0): `c * x == NIBBLES[c][x & 15] ^ NIBBLES[c][16 + (x >> 4)]`. This is the table of Plank,
/// Greenan and Miller, "Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions" (FAST 2013), two `pshufb`
/// a multiplication.
pub(crate) static NIBBLES: [[u8; 32]; 256] = nibbles();

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

/// For each element c the 8 x 8 bit matrix of "times c" in the order `gf2p8affineqb` wants: byte 7 - i of the word is the
/// row that yields bit i. GFNI's own multiplication is fixed to the polynomial 0x11B; the affine instruction does any
/// field, since multiplication by a constant is linear over GF(2).
pub(crate) static AFFINE: [u64; 256] = affine();

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
