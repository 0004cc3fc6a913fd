//! The constants against their definition, one bit at a time.

use super::*;
use crate::Implementation;
use crate::polynomial::POLYNOMIAL;

#[test]
fn powers_wrap_at_the_polynomial() {
    assert_eq!((power_of_x(0), power_of_x(31), power_of_x(32)), (1 << 31, 1, POLYNOMIAL));
}

/// After n zero bits, the register is its previous value times x^n.
#[test]
fn powers_shift_a_register_by_zero_bits() {
    let register = |zeros: usize| !Implementation::SCALAR.crc32c_append(!(1 << 31), &vec![0; zeros]);
    for zeros in [1, 5, 64, 300] {
        assert_eq!(register(zeros), power_of_x(8 * zeros as u32), "{zeros}");
    }
}
