//! The polynomial of CRC-32C, and the multiplication by x.

/// The Castagnoli polynomial 0x1EDC6F41 with its bits reversed: bit 31 is the coefficient of x^0.
pub(crate) const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Returns a polynomial times x mod P. This is also one step of the checksum register over a zero
/// bit.
pub(crate) const fn times_x(polynomial: u32) -> u32 {
    polynomial >> 1 ^ if polynomial & 1 == 1 { POLYNOMIAL } else { 0 }
}
