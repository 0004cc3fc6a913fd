//! The oracle against the definitions.

use super::*;

/// Checks the sums of products byte by byte.
#[test]
fn outputs_are_sums_of_products() {
    let inputs =
        [crate::testing::noise(1, 300), crate::testing::noise(2, 300), crate::testing::noise(3, 300)];
    let factors = [[1, 1, 1], [0, 2, 255]];
    let matrix = Matrix::new(2, 3, |r, c| factors[usize::from(r)][usize::from(c)]);
    let mut outputs = [[0xAA; 300], [0xAA; 300]];
    let [first, second] = &mut outputs;
    combine(&matrix, &inputs.each_ref().map(|i| &i[..]), &mut [first, second], 0..300);
    for (factors, output) in factors.iter().zip(&outputs) {
        for (at, &byte) in output.iter().enumerate() {
            let sum = (0..3).fold(0, |sum, j| sum ^ multiply(factors[j], inputs[j][at]));
            assert_eq!(byte, sum);
        }
    }
}

/// Checks the checksum against its definition: long division, bit by bit, lowest bit of each byte
/// first.
#[test]
fn the_checksum_is_the_remainder_of_a_division() {
    let data = crate::testing::noise(4, 77);
    let register = data.iter().fold(!0u32, |register, &byte| {
        (0..8).fold(register ^ u32::from(byte), |register, _| times_x(register))
    });
    assert_eq!(crc32c_append(0, &data), !register);
}
